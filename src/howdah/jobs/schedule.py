"""Schedule: a job that comes again and again, by the calendar of its time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from howdah.errors import ConfigError
from howdah.handler import check_name
from howdah.jobs.new import NewJob

Missed = Literal["once", "all", "skip"]
MOST_AT_ONCE = 100
"""Missed slots enqueued in one go, for ``missed="all"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One recurring job. Declared in code: only nodes that declare it fire it."""

    name: str
    job: NewJob
    cron: str
    zone: str = "UTC"
    missed: Missed = "once"
    """What to do about slots that passed while no node was up: run once for all of them, each, or none."""

    def __post_init__(self) -> None:
        check_name("the name of a schedule", self.name)
        if self.missed not in ("once", "all", "skip"):
            raise ConfigError(f"missed must be 'once', 'all' or 'skip', got {self.missed!r}")
        if self.job.run_at is not None or self.job.delay is not None:
            raise ConfigError(f"schedule {self.name!r}: its job must have no run_at or delay, the schedule has")
        try:
            ZoneInfo(self.zone)
        except (OSError, ValueError, ZoneInfoNotFoundError):
            raise ConfigError(f"schedule {self.name!r}: {self.zone!r} is no time zone; write Europe/Berlin") from None
        try:
            self.after(datetime.now(UTC))
        except (CronSimError, StopIteration):
            raise ConfigError(
                f"schedule {self.name!r}: {self.cron!r} is no cron expression; write minute hour day month weekday"
            ) from None

    def after(self, moment: datetime) -> datetime:
        """The first slot after this moment.

        >>> nightly = Schedule(name="nightly", job=NewJob(kind="report"), cron="30 2 * * *")
        >>> nightly.after(datetime(2026, 1, 1, tzinfo=UTC)).isoformat()
        '2026-01-01T02:30:00+00:00'
        """
        return next(CronSim(self.cron, moment.astimezone(ZoneInfo(self.zone)))).astimezone(UTC)

    def due(self, slot: datetime, until: datetime, late: datetime) -> tuple[list[datetime], datetime]:
        """The slots to run now, and the next one after them.

        ``slot`` is the next one not yet run; slots up to ``until`` are due, those before ``late`` were missed.
        """
        slots: list[datetime] = []
        while slot <= until and len(slots) < MOST_AT_ONCE:
            slots.append(slot)
            slot = self.after(slot)
        if self.missed == "all":
            return slots, slot
        slot = self.after(until) if slot <= until else slot
        return (slots[-1:] if self.missed == "once" else [each for each in slots if each >= late]), slot
