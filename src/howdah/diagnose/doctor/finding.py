"""The result of one check."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from howdah.redact import scrub

LONG = 60.0
"""Seconds after which something that should have ended is reported."""
TOO_LONG = 3600.0
SILENT = 60.0
"""Seconds without a heartbeat after which a node is shown as dead."""

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
