"""Words: how facts are said, a line each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from howdah.upkeep.finding import span

LONGEST = 200
"""Characters of an error, or of what somebody wrote, that are shown."""


def line(text: str | None, longest: int = LONGEST) -> str:
    """Somebody's text as one line, cut.

    >>> line("ValueError: no\\n  such user"), line("x" * 300, 5), line(None)
    ('ValueError: no such user', 'xxxx…', '')
    """
    words = " ".join((text or "").split())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def moment(at: datetime) -> str:
    """A moment of the server's clock."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def until(at: datetime, now: datetime) -> str:
    """A moment, and how far off it is.

    >>> now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    >>> until(now + timedelta(minutes=5), now), until(now - timedelta(hours=2), now)
    ('2026-01-02 03:09:05Z (in 5 min)', '2026-01-02 01:04:05Z (2 h ago)')
    """
    away = at - now
    if away >= timedelta(0):
        return f"{moment(at)} (in {span(away.total_seconds())})"
    return f"{moment(at)} ({span(-away.total_seconds())} ago)"


def count(number: int, what: str) -> str:
    """So many of something.

    >>> count(1, "job"), count(12000, "job")
    ('1 job', '12,000 jobs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
