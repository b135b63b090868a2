"""Enqueues recurring jobs, each slot once, on the node that gets to it first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from howdah import telemetry
from howdah.job import NewJob
from howdah.jobs.enqueue import EnqueueClient
from howdah.jobs.schedule import LATE, Schedule
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, Database, Session
from howdah.postgres.sql import columns
from howdah.redact import scrub, shorten

log = logging.getLogger("howdah")

AHEAD = timedelta(seconds=2)
"""A slot is enqueued so long before, as a job that is not due yet: then it starts on time to the millisecond."""
DECLARE_EVERY = 5.0
"""Seconds between two declarations of a node."""
SEEN = timedelta(seconds=30)
"""A declaration that no node repeated for so long is no longer in force."""
FORGET = timedelta(hours=1)
"""A declaration that no node repeated for so long is forgotten; when it comes back it is a new one."""
BOUNDS = """
    select set_config('idle_in_transaction_session_timeout', '10s', true), set_config('lock_timeout', '2s', true)
"""
"""A process that is frozen while it fires, and a key that another transaction holds, must not stop the schedules."""
LONGEST_ERROR = 500


class Scheduler:
    """Fires the schedules this app declares while its declaration is the current one. Safe on every node at once."""

    def __init__(self, database: Database, schedules: Mapping[str, Schedule], client: EnqueueClient) -> None:
        self._schedules = schedules
        self._declarations = {name: each.declaration for name, each in schedules.items()}
        self._client = client
        self._session = Session(database, "schedule")
        self._sql = sql.load("howdah.maintenance", schema=database.schema)
        self._declare_at = 0.0
        self._since: dict[str, datetime] = {}
        """When each declaration was first declared, by the clock of the server, read after the start."""
        self._declared_at: float | None = None
        """When this node declared last."""
        self._no_takeover_until = 0.0
        """Until when this node takes over nothing, since it was cut off or frozen."""
        self._no_older_takeover_until = 0.0
        """Until when this node takes over nothing from a later declaration, since it has just started."""
        self._rivals: dict[str, str] = {}
        """The other declaration of a schedule that was warned of."""
        self._errors: dict[str, str] = {}
        """Why a schedule could not be fired, as it was logged."""

    async def tick(self) -> None:
        """Enqueue the slots that fall due soon."""
        if time.monotonic() >= self._declare_at:
            await self.declare()
            self._declare_at = time.monotonic() + DECLARE_EVERY
        mine = columns([(name, each, _ahead(self._schedules[name])) for name, each in self._declarations.items()], 3)
        for row in await self._session.fetch(self._sql["schedule_due"], *mine):
            await self._fire_or_log(row["name"])

    async def declare(self) -> None:
        """Declare this app's schedules, and take over those whose current declaration is this one."""
        began = time.monotonic()
        if self._declared_at is not None and began - self._declared_at > SEEN.total_seconds():
            self._no_takeover_until = began + SEEN.total_seconds()
        if self._declared_at is None:
            self._no_older_takeover_until = began + SEEN.total_seconds()
        rows = [(each.name, self._declarations[each.name], each.job.kind, each.cron, each.zone) for each in self._all]
        mine, since = columns(rows, 5), [self._since.get(each.name) for each in self._all]
        await self._session.fetch(self._sql["schedule_declare"], *mine, FORGET, since)
        if not self._since:
            found = await self._session.fetch(self._sql["schedule_since"], *mine[:2])
            self._since = {row["name"]: row["declared_at"] for row in found}
        self._declared_at = time.monotonic()
        standing = await self._session.fetch(self._sql["schedule_standing"], *mine[:2], SEEN)
        rivals = {row["name"]: row for row in standing if row["declaration"] != self._declarations[row["name"]]}
        for name, row in rivals.items():
            if self._rivals.get(name) != row["declaration"]:
                log.warning(
                    "schedule %r is declared otherwise by other nodes (kind %s, cron %r, zone %s): they fire it, this"
                    " node does not; finish the roll-out, or rename one of the two",
                    *(name, row["kind"], row["cron"], row["zone"]),
                )
        self._rivals = {name: row["declaration"] for name, row in rivals.items()}
        if time.monotonic() < self._no_takeover_until:
            return  # nodes of the current declaration were cut off as well, and may need a moment longer to return
        for row in standing:
            if row["name"] in rivals or (row["older"] and time.monotonic() < self._no_older_takeover_until):
                continue  # nodes of a later declaration may be cut off, and return in a moment
            await self._take_over(self._schedules[row["name"]])

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    @property
    def _all(self) -> list[Schedule]:
        return list(self._schedules.values())

    async def _take_over(self, schedule: Schedule) -> None:
        """Make this declaration the one that is fired. The same times go on where they are; others start from now."""
        declaration = self._declarations[schedule.name]
        async with self._session.use() as conn, conn.transaction():
            await conn.execute(BOUNDS)
            row = await conn.fetchrow(self._sql["schedule_lock"], schedule.name, declaration, SEEN)
            if row is None:  # taken over meanwhile, no longer ours to take, or locked: the next round looks again
                return
            slot = _first_slot(schedule, row)
            values = (schedule.job.kind, schedule.cron, schedule.zone)
            await conn.fetch(self._sql["schedule_take"], schedule.name, declaration, *values, slot)

    async def _fire_or_log(self, name: str) -> None:
        """Fire one schedule; what is wrong with it is logged and stored, and the others go on."""
        try:
            await self._fire(self._schedules[name])
            self._errors.pop(name, None)
        except Exception as error:
            if isinstance(error, BROKEN) and not isinstance(error, ValueError):
                raise
            why = _describe_error(error, self._schedules[name])
            await self._session.fetch(self._sql["schedule_failed"], name, self._declarations[name], why)
            if self._errors.get(name) != why:
                self._errors[name] = why
                log.error("schedule %r could not enqueue its job, and is tried again: %s", name, why)

    async def _fire(self, schedule: Schedule) -> None:
        declaration, ahead = self._declarations[schedule.name], _ahead(schedule)
        async with self._session.use() as conn, conn.transaction():
            await conn.execute(BOUNDS)
            row = await conn.fetchrow(self._sql["schedule_claim"], schedule.name, declaration, ahead)
            if row is None:  # another node is at it, or was
                return
            slots, following = _due(schedule, row, ahead)
            job = None
            for slot in slots:
                job = (await self._client.enqueue(_at(schedule, slot), conn)).id
                await asyncio.sleep(0)
            last = slots[-1] if slots else None
            await conn.fetch(self._sql["schedule_fired"], schedule.name, declaration, following, last, job)
        telemetry.emit("schedule.fire", name=schedule.name, slots=len(slots), job=job)


def _describe_error(error: Exception, schedule: Schedule) -> str:
    """Return an error in one line, without the row quoted by the server, which contains the arguments."""
    if isinstance(error, asyncpg.LockNotAvailableError) and schedule.job.key is not None:
        return f"another transaction that is still open holds its key {schedule.job.key!r}"
    text = str(getattr(error, "message", None) or error)
    return shorten(scrub(f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"), LONGEST_ERROR)


def _first_slot(schedule: Schedule, row: Any) -> datetime:
    """The slot to begin with when a declaration takes over from another."""
    pending, now = row["slot_at"], row["now"]
    if pending is not None:
        common = schedule.at_or_after(pending)
        if (row["cron"], row["zone"]) == (schedule.cron, schedule.zone):
            return common
        if common == pending and now - LATE < pending <= now:  # due now, by both expressions
            return common
    # a slot that was enqueued ahead by the other expression is not enqueued again
    return schedule.after(max(now, row["last_at"] or now))


def _due(schedule: Schedule, row: Any, ahead: timedelta) -> tuple[list[datetime], datetime]:
    slot, now = row["slot_at"], row["now"]
    if row["not_before"] is not None and slot < row["not_before"]:
        slot = schedule.at_or_after(row["not_before"])
    return schedule.due(slot, now, now + ahead)


def _ahead(schedule: Schedule) -> timedelta:
    """Return how early a job is enqueued: not at all with a key, which the previous run may still hold."""
    return AHEAD if schedule.job.key is None else timedelta(0)


def _at(schedule: Schedule, slot: datetime) -> NewJob:
    return msgspec.structs.replace(schedule.job, run_at=slot)
