"""History for the benchmark: fills the tables with millions of jobs by set-based inserts."""

from __future__ import annotations

from typing import NamedTuple

from howdah.postgres import sql
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.scenario import Plan

BLOCK = 250_000
"""Jobs put in by one statement."""
STATEMENT_TIMEOUT = 600.0
"""Seconds."""
RUNNING = 200
WAITING = 0.04
"""Queued jobs as a fraction of the finished ones."""
PER_BLOCK = ("history_jobs", "history_outcomes", "history_attempts", "history_counters")


class JobHistory(NamedTuple):
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


async def fill(plan: Plan) -> JobHistory:
    """Jobs that are over, that wait and that run, and what else there is by then."""
    conn, statements = plan.schema.conn, sql.load("howdah_lab.bench", schema=plan.schema.database.schema)
    history = JobHistory(finished=plan.jobs, waiting=max(600, round(plan.jobs * WAITING) // 600 * 600))
    await conn.execute(statements["make_rows"])
    await conn.execute(statements["history_surroundings"], timeout=STATEMENT_TIMEOUT)
    for lo in range(1, history.finished, BLOCK):
        hi = min(lo + BLOCK, history.finished)
        await conn.execute(statements["history_partitions"], hi, timeout=STATEMENT_TIMEOUT)
        for verb in PER_BLOCK:
            scope = (lo, hi, history.finished) if verb == "history_jobs" else (lo, hi)
            await conn.execute(statements[verb], *scope, timeout=STATEMENT_TIMEOUT)
    await conn.execute(statements["history_partitions"], history.running + RUNNING, timeout=STATEMENT_TIMEOUT)
    await conn.execute(statements["waiting_jobs"], history.queued, history.running, timeout=STATEMENT_TIMEOUT)
    await conn.execute(
        statements["running_jobs"], history.running, history.running + RUNNING, timeout=STATEMENT_TIMEOUT
    )
    await conn.execute(statements["settle_history"], timeout=STATEMENT_TIMEOUT)
    row = await conn.fetchrow(statements["check_history"], timeout=STATEMENT_TIMEOUT)
    wanted = {"ended": history.finished - 1, "waiting": history.waiting, "running": RUNNING, "astray": 0}
    wrong = [f"{name} {row[name]:,} instead of {value:,}" for name, value in wanted.items() if row[name] != value]
    if wrong:
        raise CheckFailed(f"the tables do not add up: {', '.join(wrong)}")
    return history
