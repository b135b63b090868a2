"""History for the benchmark: fills the tables with millions of jobs by set-based inserts."""

from __future__ import annotations

from typing import NamedTuple

from howdah.postgres import sql
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.scenario import Plan

BLOCK = 250_000
"""Jobs put in by one statement."""
PATIENCE = 600.0
RUNNING = 200
WAITING = 0.04
"""Queued jobs as a fraction of the finished ones."""
PAST = ("past_jobs", "past_ends", "past_attempts", "past_tally")


class Past(NamedTuple):
    """Number of jobs per state; ids rise, running ones are the newest."""

    finished: int
    waiting: int

    @property
    def failed(self) -> int:
        """The newest that failed."""
        return self.finished - 1 - (self.finished - 1 - 7) % 50

    @property
    def queued(self) -> int:
        """The first that waits."""
        return self.finished

    @property
    def running(self) -> int:
        """The first that runs."""
        return self.finished + self.waiting


async def fill(plan: Plan) -> Past:
    """Jobs that are over, that wait and that run, and what else there is by then."""
    conn, statements = plan.schema.conn, sql.load("howdah_lab.bench", schema=plan.schema.database.schema)
    past = Past(finished=plan.jobs, waiting=max(600, round(plan.jobs * WAITING) // 600 * 600))
    await conn.execute(statements["make_rows"])
    await conn.execute(statements["past_surroundings"], timeout=PATIENCE)
    for lo in range(1, past.finished, BLOCK):
        hi = min(lo + BLOCK, past.finished)
        await conn.execute(statements["past_room"], hi, timeout=PATIENCE)
        for verb in PAST:
            scope = (lo, hi, past.finished) if verb == "past_jobs" else (lo, hi)
            await conn.execute(statements[verb], *scope, timeout=PATIENCE)
    await conn.execute(statements["past_room"], past.running + RUNNING, timeout=PATIENCE)
    await conn.execute(statements["waiting_jobs"], past.queued, past.running, timeout=PATIENCE)
    await conn.execute(statements["running_jobs"], past.running, past.running + RUNNING, timeout=PATIENCE)
    await conn.execute(statements["settle_history"], timeout=PATIENCE)
    row = await conn.fetchrow(statements["check_past"], timeout=PATIENCE)
    wanted = {"ended": past.finished - 1, "waiting": past.waiting, "running": RUNNING, "astray": 0}
    wrong = [f"{name} {row[name]:,} instead of {value:,}" for name, value in wanted.items() if row[name] != value]
    if wrong:
        raise CheckFailed(f"the tables do not add up: {', '.join(wrong)}")
    return past
