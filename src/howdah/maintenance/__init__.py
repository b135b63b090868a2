"""Maintenance loops of a node: create partitions, prune, count finished jobs, repair, fire schedules."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Any

import asyncpg

from howdah import telemetry
from howdah.loops import every
from howdah.maintenance.pruner import Pruner, Retention
from howdah.maintenance.scheduler import Scheduler
from howdah.outcome import Acks
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.postgres.sql import columns

log = logging.getLogger("howdah")

JOBS_AT_ONCE = 25_000
"""Jobs examined by one check."""
REPAIR_INTERVAL = 5.0
"""Seconds between two checks, over all nodes."""


class Repair:
    """Finds jobs that are in no queue and in no lease, and leases without jobs; each call checks a part of the tables.

    Neither should exist. If a bug in Howdah leaves one behind all the same, the job runs again instead of never. All
    nodes share one position in the tables, so the cost does not grow with their number.
    """

    def __init__(self, database: Database, session: Session) -> None:
        self._session = session
        self._statement = sql.load("howdah.maintenance", schema=database.schema)["repair"]

    async def run(self) -> None:
        """Check the next part of the tables, and repair it."""
        row = await self._session.fetchrow(self._statement, JOBS_AT_ONCE, REPAIR_INTERVAL, timeout=60)
        jobs, leases = row["requeued"] + row["ended"], row["leases"]
        if jobs or leases:
            telemetry.emit("job.repair", requeued=row["requeued"], ended=row["ended"], leases=leases)
        if jobs:
            log.error(
                "%d jobs were in no place where a job can be: %d queued again, %d failed for want of attempts;"
                " please report it with the log of the workers",
                jobs,
                row["requeued"],
                row["ended"],
            )
        if leases:
            log.warning("ended %d leases of which nothing was left", leases)


GROW_EVERY = 5.0
TALLY_EVERY = 5.0
PRUNE_EVERY = 3600.0
REPAIR_EVERY = 10.0
SCHEDULE_EVERY = 1.0

_counting: list[MaintenanceLoops] = []
"""The loops that run in this process; the first one counts."""


class MaintenanceLoops:
    """Runs the loops of one node."""

    def __init__(self, database: Database, *, retention: Retention, scheduler: Scheduler | None = None) -> None:
        self._scheduler = scheduler
        self._database_key = (database.dsn, database.schema)
        self._session = Session(database, "upkeep")
        self._pruner = Pruner(database, retention)
        self._repair = Repair(database, self._session)
        self._sql = sql.load("howdah.maintenance", schema=database.schema)
        self._tally: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0])

    async def run(self, stop: asyncio.Event) -> None:
        """Run all loops until ``stop``."""
        unsubscribe = telemetry.subscribe(self._count)
        _counting.append(self)
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(every(GROW_EVERY, self.grow, name="grow", stop=stop))
                loops.create_task(every(TALLY_EVERY, self.write_tally, name="tally", stop=stop))
                loops.create_task(every(PRUNE_EVERY, self._pruner.prune, name="prune", stop=stop))
                loops.create_task(every(REPAIR_EVERY, self._repair.run, name="repair", stop=stop))
                if self._scheduler:
                    loops.create_task(every(SCHEDULE_EVERY, self._scheduler.tick, name="schedule", stop=stop))
        finally:
            unsubscribe()
            _counting.remove(self)
            try:
                await self.write_tally()
            except Exception:  # noqa: S110 - the last few seconds of a chart are not worth an error at exit
                pass
            await self._session.close()
            if self._scheduler:
                await self._scheduler.close()

    async def grow(self) -> None:
        """Create partitions ahead of need."""
        try:
            await self._session.fetchval(self._sql["grow"])
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            pass  # next time; there are partitions ahead

    async def write_tally(self) -> None:
        """Add what finished here to the minute's totals."""
        if self._tally:
            tally, self._tally = dict(self._tally), defaultdict(lambda: [0, 0.0])
            rows = [(*key, int(jobs), seconds) for key, (jobs, seconds) in tally.items()]
            await self._session.fetch(self._sql["tally"], *columns(rows, 5))

    def _is_counter(self) -> bool:
        """Return whether this one counts: a node and a control plane in one process receive the same events."""
        return next(each for each in _counting if each._database_key == self._database_key) is self

    def _count(self, name: str, facts: dict[str, Any]) -> None:
        if name == "job.ack" and self._is_counter():
            for (queue, kind, outcome), each in Acks.of(facts["acks"]).took.items():
                total = self._tally[queue, kind, outcome.value]
                total[0] += len(each)
                total[1] += sum(each) / 1e6
