"""Choice: which jobs somebody means, as it stands in an address or a form; and back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from howdah.dashboard.refusal import Refused
from howdah.errors import ConfigError
from howdah.jobs.filter import TIMES, Filter

TEXTS = ("state", "queue", "kind", "key", "text", "fingerprint")


def chosen(get: Callable[[str, str], str]) -> Filter:
    """The filter in what was sent."""
    said: dict[str, Any] = {name: get(name, "").strip() or None for name in TEXTS}
    said |= {name: moment(name, get(name, "").strip()) for name in TIMES}
    try:
        return Filter(**said)
    except ConfigError as error:
        raise Refused(400, f"These jobs cannot be shown: {error}.", "Change the filter.") from None


def fields(filter: Filter) -> dict[str, str]:
    """The filter as it is sent."""
    return {
        name: value.isoformat(timespec="minutes").removesuffix("+00:00") if isinstance(value, datetime) else str(value)
        for name, value in filter.said.items()
    }


def moment(name: str, text: str) -> datetime | None:
    """A time as a browser sends it; without a zone it is UTC."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(400, f"{name} must be a time, got {text[:40]!r}.", "Write it like 2026-01-31T12:00.") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
