"""Results of checks: a finding of `howdah doctor`, a gate of `howdah why`, and the format of their facts."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from howdah.postgres.sql import literal
from howdah.redact import scrub

LONG = 60.0
"""Seconds after which something that should have ended is reported."""
TOO_LONG = 3600.0
SILENT = 60.0
"""Seconds without a heartbeat after which a node is shown as dead."""
LONGEST = 200
"""Largest number of characters shown of an error or of user text."""

Fetch = Callable[..., Awaitable[list[Any]]]
"""Runs one of the doctor's statements by its name, within the timeout."""


class Verdict(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """One check: what was found, and what to do about it."""

    name: str
    verdict: Verdict
    fact: str
    fix: str | None = None


class Gate(msgspec.Struct, frozen=True):
    """One condition of a claim: whether it is met, the fact that decides it, and what to do."""

    name: str
    open: bool
    fact: str
    fix: str | None = None


def ok(name: str, fact: str) -> Finding:
    """Nothing to do."""
    return Finding(name, Verdict.OK, fact)


def warn(name: str, fact: str, fix: str) -> Finding:
    """It works, but needs attention."""
    return Finding(name, Verdict.WARN, fact, fix)


def bad(name: str, fact: str, fix: str) -> Finding:
    """It does not work, or will soon stop working."""
    return Finding(name, Verdict.BAD, fact, fix)


def statement(text: str, longest: int = 80) -> str:
    """Return an SQL statement in one line, without its values.

    >>> statement("active: update users\\n  set town = 'Ulm'  where id = 7")
    "active: update users set town = '…' where id = 7"
    """
    hidden = re.sub(r"'(?:[^']|'')*('|$)", "'…'", text)
    line = scrub(" ".join(hidden.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def end_transaction(pid: int | None, prepared: str | None) -> str:
    """Return how to end a transaction of another session, or a prepared one.

    >>> end_transaction(7, None), end_transaction(None, "t")
    ('end that transaction, or select pg_terminate_backend(7)', "commit prepared 't', or rollback prepared 't'")
    """
    if prepared is not None:
        return f"commit prepared {literal(prepared)}, or rollback prepared {literal(prepared)}"
    return f"end that transaction, or select pg_terminate_backend({pid})"


def some(items: Sequence[object], most: int = 5) -> str:
    """Return the first few items, and the number of the rest.

    >>> some(range(7)), some([])
    ('0, 1, 2, 3, 4 and 2 more', 'none')
    """
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown or "none"


def span(seconds: float) -> str:
    """Format a time span in one unit.

    >>> span(5), span(120), span(7200), span(200000)
    ('5 s', '2 min', '2 h', '2 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * size if unit == "days" else size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


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


def ordered(gates: Iterable[Gate]) -> list[Gate]:
    """Sort closed gates first; otherwise keep the order.

    >>> [gate.name for gate in ordered([Gate("node", True, ""), Gate("due", False, ""), Gate("pause", False, "")])]
    ['due', 'pause', 'node']
    """
    return sorted(gates, key=lambda gate: gate.open)
