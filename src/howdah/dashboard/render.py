"""Templates, and the formatting of times, numbers and values. Everything is always escaped."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import msgspec

from howdah.redact import TOO_DEEP

STATIC = files("howdah.dashboard") / "static"
LONGEST_VALUE = 20_000


@cache
def environment() -> jinja2.Environment:
    """The templates."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("howdah.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=count,
        rate=rate,
        percent=percent,
        span=span,
        ago=ago,
        ahead=ahead,
        iso=iso,
        clock=clock,
        pretty=pretty,
        json=json,
    )
    return made


@cache
def version_of(name: str) -> str:
    """Of a static file, by what is in it: a new one is fetched at once, an old one never again."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def count(number: float | None) -> str:
    """A number for people.

    >>> count(950), count(12_345), count(None)
    ('950', '12,345', '–')
    """
    return "–" if number is None else f"{number:,.0f}"


def rate(number: float) -> str:
    """So many a second.

    >>> rate(0), rate(0.25), rate(7.31), rate(1234.5)
    ('0', '0.25', '7.3', '1,234')
    """
    return f"{number:,.0f}" if number >= 100 or number == 0 else f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def json(value: Any) -> str:
    """A value for a script, in an attribute."""
    return msgspec.json.encode(value).decode()


def percent(share: float | None) -> str:
    """A share of one.

    >>> percent(0.123), percent(None)
    ('12 %', '–')
    """
    return "–" if share is None else f"{share * 100:.0f} %"


def span(seconds: float | None) -> str:
    """A time span in the unit that fits.

    >>> span(0.000_001), span(0.0042), span(2.5), span(75), span(7300), span(200_000), span(None)
    ('1 µs', '4.2 ms', '2.5 s', '75 s', '2 h', '2 days', '–')
    """
    if seconds is None:
        return "–"
    if 0 < seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for unit, size, from_ in (("days", 86400, 172800), ("h", 3600, 7200), ("min", 60, 120)):
        if seconds >= from_:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def ago(at: datetime | None) -> str:
    """Return the age of a time in words."""
    if at is None:
        return "–"
    seconds = (datetime.now(UTC) - at).total_seconds()
    return "just now" if seconds < 1 else f"{span(seconds)} ago"


def ahead(at: datetime | None) -> str:
    """Return the time until a moment in words."""
    if at is None:
        return "–"
    seconds = (at - datetime.now(UTC)).total_seconds()
    return f"in {span(seconds)}" if seconds > 0 else ago(at)


def iso(at: datetime) -> str:
    """For machines."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


def clock(at: datetime | None) -> str:
    """The whole time, in UTC."""
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def pretty(value: Any) -> str:
    """A value as JSON, indented, and cut when it is very long."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, UnicodeError):
        text = repr(value)
    except RecursionError:
        text = TOO_DEEP
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}\n… {len(text) - LONGEST_VALUE:,} more"
