"""Recurring jobs: cron expressions in a time zone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from howdah.errors import ArgumentError, ConfigError
from howdah.handler import check_name
from howdah.job import NewJob

Missed = Literal["once", "all", "skip"]
MOST_AT_ONCE = 100
"""Missed slots enqueued at once, for ``missed="all"``."""
LATE = timedelta(seconds=60)
"""A slot older than this was missed."""
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One recurring job. Declared in code: only nodes that declare it fire it."""

    name: str
    job: NewJob
    cron: str
    zone: str = "UTC"
    missed: Missed = "once"
    """Slots that passed while no node was up: run once for all of them, run all, or skip."""

    def __post_init__(self) -> None:
        check_name("the name of a schedule", self.name)
        if self.missed not in ("once", "all", "skip"):
            raise ConfigError(f"missed must be 'once', 'all' or 'skip', got {self.missed!r}")
        if self.job.run_at is not None or self.job.delay is not None:
            raise ConfigError(f"schedule {self.name!r}: its job must have no run_at or delay, the schedule has")
        self._check_job()
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

    @property
    def declaration(self) -> str:
        """A hash of all settings except the name: nodes with the same hash fire the same jobs."""
        job = self.job
        settings = (self.cron, self.zone, self.missed, job.kind, job.payload, job.queue, job.priority, job.max_attempts)
        more = (float(job.timeout) if job.timeout is not None else None, job.key, job.meta)
        return hashlib.sha256(msgspec.json.encode((*settings, *more))).hexdigest()[:32]

    def after(self, moment: datetime) -> datetime:
        """Return the first slot after this moment.

        >>> nightly = Schedule(name="nightly", job=NewJob(kind="report"), cron="30 2 * * *")
        >>> nightly.after(datetime(2026, 1, 1, tzinfo=UTC)).isoformat()
        '2026-01-01T02:30:00+00:00'
        """
        zone = ZoneInfo(self.zone)
        slot = next(CronSim(self.cron, moment.astimezone(zone)))
        while self._is_of_a_skipped_day(slot):
            slot = next(CronSim(self.cron, slot))
        return slot.astimezone(UTC)

    def at_or_after(self, moment: datetime) -> datetime:
        """Return the first slot at or after this moment."""
        return self.after(moment - timedelta(microseconds=1))

    def due(self, slot: datetime, now: datetime, until: datetime) -> tuple[list[datetime], datetime]:
        """Return the slots to run now, and the next one after them.

        ``slot`` is the next one not yet run; slots up to ``until`` are due, those older than a minute were missed.
        """
        late = now - LATE
        made_up: list[datetime] = []
        if slot < late and self.missed != "all":
            if self.missed == "once":
                made_up, slot = [last := self._last(slot, now)], self.after(last)
            else:
                slot = self.at_or_after(late)
        slots: list[datetime] = []
        while slot <= until and len(slots) < MOST_AT_ONCE:
            slots.append(slot)
            slot = self.after(slot)
        return made_up + slots, slot

    def _last(self, slot: datetime, now: datetime) -> datetime:
        """Return the last slot up to ``now`` by bisection: there may be millions after ``slot``."""
        low, high = slot - SECOND, now
        while high - low > SECOND:
            middle = low + (high - low) / 2
            if self.after(middle) <= now:
                low = middle
            else:
                high = middle
        return self.after(low)

    def _is_of_a_skipped_day(self, slot: datetime) -> bool:
        """Return whether a slot belongs to a day that its zone skipped, as Apia did on 30 December 2011.

        The parser moves the time of such a day to the first moment after it, where it would be a second run.
        """
        before = (slot.astimezone(UTC) - SECOND).astimezone(slot.tzinfo)
        if slot.date() - before.date() <= DAY:
            return False
        local = slot.replace(tzinfo=None)
        return next(CronSim(self.cron, local - SECOND)) != local

    def _check_job(self) -> None:
        """Reject at declaration what the database would reject at every slot."""
        try:
            job = msgspec.convert(msgspec.structs.asdict(self.job), NewJob)
            job.check()
            for what, text in (("payload", job.payload), ("meta", job.meta)):
                if text is not None and not isinstance(msgspec.json.decode(text), dict):
                    raise ArgumentError(f"{what} must be a JSON object")
            if job.trace is not None and not job.trace.isprintable():
                raise ArgumentError("trace must be printable")
        except (ArgumentError, msgspec.MsgspecError, UnicodeError) as error:
            raise ConfigError(f"schedule {self.name!r}: its job cannot be enqueued: {error}") from None
