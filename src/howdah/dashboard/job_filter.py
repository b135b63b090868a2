"""Converts job filters and job ids from and to URLs and forms."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from howdah.dashboard.errors import RequestError
from howdah.errors import ConfigError
from howdah.jobs.filter import TIMES, ExpectedJob, Filter
from howdah.jobs.rows import JobRow

TEXTS = ("state", "queue", "kind", "key", "text", "fingerprint")


def chosen(get: Callable[[str, str], str]) -> Filter:
    """Return the filter in the sent fields."""
    said: dict[str, Any] = {name: get(name, "").strip() or None for name in TEXTS}
    said |= {name: moment(name, get(name, "").strip()) for name in TIMES}
    try:
        return Filter(**said)
    except ConfigError as error:
        raise RequestError(400, f"These jobs cannot be shown: {error}.", "Change the filter.") from None


def fields(filter: Filter) -> dict[str, str]:
    """The filter as it is sent; a time keeps its seconds, or an act would meet more jobs than the page shows."""
    return {name: _sent(value) if isinstance(value, datetime) else str(value) for name, value in filter.said.items()}


def _sent(at: datetime) -> str:
    return at.isoformat(timespec="auto" if at.second or at.microsecond else "minutes").removesuffix("+00:00")


def mark(job: JobRow) -> str:
    """A job as a form names it: with its state, and the moment it ended, as the visitor saw them."""
    seen = ExpectedJob.of(job)
    return f"{seen.id}.{seen.state}.{seen.ended.isoformat() if seen.ended else ''}"


def marked(text: str) -> ExpectedJob:
    """The job a form names; a bare id means it whatever its state.

    >>> marked("7"), marked("8.queued.")
    (ExpectedJob(id=7, state=None, ended=None), ExpectedJob(id=8, state='queued', ended=None))
    """
    id, _, rest = text.partition(".")
    state, _, ended = rest.partition(".")
    try:
        if not id.isdecimal() or len(id) > 18 or len(state) > 20:
            raise ValueError(text)
        at = datetime.fromisoformat(ended) if ended else None
        if at is not None and at.tzinfo is None:
            raise ValueError(text)
        return ExpectedJob(int(id), state or None, at)
    except ValueError:
        raise RequestError(400, f"{text[:40]!r} is no job.", "Reload the page and try again.") from None


def moment(name: str, text: str) -> datetime | None:
    """A time as a browser sends it; without a zone it is UTC."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            400, f"{name} must be a time, got {text[:40]!r}.", "Write it like 2026-01-31T12:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
