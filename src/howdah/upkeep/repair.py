"""Self-repair of the job tables."""

from __future__ import annotations

import logging

from howdah import telemetry
from howdah.pg import sql
from howdah.pg.database import Database, Session

log = logging.getLogger("howdah")

JOBS_AT_ONCE = 25_000
"""Jobs one look examines."""
PACE = 5.0
"""Seconds between two looks of all nodes together."""


class Repair:
    """Finds jobs in no place and leases without jobs, a part of the tables at each call, round and round.

    Neither should exist. If a defect of ours leaves one behind all the same, the job runs again instead of never. All
    nodes share one position in the tables, so the cost does not grow with their number.
    """

    def __init__(self, database: Database, session: Session) -> None:
        self._session = session
        self._statement = sql.load("howdah.upkeep", schema=database.schema)["repair"]

    async def look(self) -> None:
        """Look at the next part, and repair what is wrong there."""
        row = await self._session.fetchrow(self._statement, JOBS_AT_ONCE, PACE, timeout=60)
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
