"""A gate: one condition that must hold before work runs, with the fact that decides it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from howdah.diagnose.doctor.finding import span

LONGEST = 200
"""Largest number of characters shown of an error or of user text."""


def line(text: str | None, longest: int = LONGEST) -> str:
    """Return user text as one line, truncated.

    >>> line("ValueError: no\\n  such user"), line("x" * 300, 5), line(None)
    ('ValueError: no such user', 'xxxx…', '')
    """
    words = " ".join((text or "").split())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def moment(at: datetime) -> str:
    """Format a time of the server's clock."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def until(at: datetime, now: datetime) -> str:
    """Format a time, and its distance from now.

    >>> now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    >>> until(now + timedelta(minutes=5), now), until(now - timedelta(hours=2), now)
    ('2026-01-02 03:09:05Z (in 5 min)', '2026-01-02 01:04:05Z (2 h ago)')
    """
    away = at - now
    if away >= timedelta(0):
        return f"{moment(at)} (in {span(away.total_seconds())})"
    return f"{moment(at)} ({span(-away.total_seconds())} ago)"


def count(number: int, what: str) -> str:
    """Format a number of things.

    >>> count(1, "job"), count(12000, "job")
    ('1 job', '12,000 jobs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class Gate(msgspec.Struct, frozen=True):
    """One condition of the claim: whether it lets the job pass, by which fact, and what to do about it."""

    name: str
    open: bool
    fact: str
    fix: str | None = None


def ordered(gates: Iterable[Gate]) -> list[Gate]:
    """Sort closed gates first; otherwise keep the order.

    >>> [gate.name for gate in ordered([Gate("node", True, ""), Gate("due", False, ""), Gate("pause", False, "")])]
    ['due', 'pause', 'node']
    """
    return sorted(gates, key=lambda gate: gate.open)
