"""Scheduler: enqueues recurring jobs, each slot once, whichever node comes first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from howdah import telemetry
from howdah.jobs.client import Client
from howdah.jobs.new import NewJob
from howdah.jobs.schedule import Schedule
from howdah.pg import sql
from howdah.pg.database import Database, Session

AHEAD = timedelta(seconds=2)
"""A slot is enqueued so long before, as a job that is not due yet: then it starts on time to the millisecond."""
LATE = timedelta(seconds=60)
"""A slot older than this was missed."""


class Scheduler:
    """Fires the schedules this app declares. Safe on every node at once."""

    def __init__(self, database: Database, schedules: Mapping[str, Schedule], client: Client) -> None:
        self._schedules = schedules
        self._client = client
        self._session = Session(database, "schedule")
        self._sql = sql.load("howdah.upkeep", schema=database.schema)
        self._declared = False

    async def tick(self) -> None:
        """Enqueue what falls due within the next moments."""
        if not self._declared:
            await self._declare()
            self._declared = True
        async with self._session.use() as conn, conn.transaction():
            # a process frozen in here must not keep the other nodes from firing
            await conn.execute("select set_config('idle_in_transaction_session_timeout', '10s', true)")
            rows = await conn.fetch(self._sql["schedule_due"], list(self._schedules), AHEAD)
            for row in rows:
                schedule = self._schedules[row["name"]]
                slots, following = schedule.due(row["next_at"], row["now"] + AHEAD, row["now"] - LATE)
                job = None
                for slot in slots:
                    made = await self._client.enqueue(_at(schedule, slot), conn)
                    job = made.id
                last = slots[-1] if slots else None
                await conn.fetch(self._sql["schedule_fired"], row["name"], following, last, job)
                telemetry.emit("schedule.fire", name=row["name"], slots=len(slots), job=job)

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def _declare(self) -> None:
        """A schedule that is new, or says another time than before, starts from now."""
        now = await self._session.fetchval("select clock_timestamp()")
        for each in self._schedules.values():
            await self._session.fetch(
                self._sql["schedule_declare"], each.name, each.job.kind, each.cron, each.zone, each.after(now)
            )


def _at(schedule: Schedule, slot: datetime) -> NewJob:
    return msgspec.structs.replace(schedule.job, run_at=slot)
