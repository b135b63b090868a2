"""Finding: what the doctor says about one thing."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from howdah.scrub import scrub

LONG = 60.0
"""Seconds after which something that should end is worth a look."""
TOO_LONG = 3600.0
SILENT = 60.0
"""Seconds after which a silent node counts as dead, for people to see."""

Fetch = Callable[..., Awaitable[list[Any]]]
"""Runs a statement of the doctor's by its verb, within his patience."""


class Verdict(StrEnum):
    """How it stands."""

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
    """It works, but look at it."""
    return Finding(name, Verdict.WARN, fact, fix)


def bad(name: str, fact: str, fix: str) -> Finding:
    """It does not work, or soon will not."""
    return Finding(name, Verdict.BAD, fact, fix)


def statement(text: str, longest: int = 80) -> str:
    """Somebody's statement in one line, without the values in it.

    >>> statement("active: update users\\n  set town = 'Ulm'  where id = 7")
    "active: update users set town = '…' where id = 7"
    """
    hidden = re.sub(r"'(?:[^']|'')*('|$)", "'…'", text)
    line = scrub(" ".join(hidden.split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def some(items: Sequence[object], most: int = 5) -> str:
    """The first few, and how many more.

    >>> some(range(7)), some([])
    ('0, 1, 2, 3, 4 and 2 more', 'none')
    """
    shown = ", ".join(map(str, items[:most]))
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown or "none"


def span(seconds: float) -> str:
    """A time span in one unit.

    >>> span(5), span(120), span(7200), span(200000)
    ('5 s', '2 min', '2 h', '2 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * size if unit == "days" else size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
