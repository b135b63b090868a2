"""Upper bound for single enqueues: inserts by pgbench, one row and one commit at a time, without a queue."""

from __future__ import annotations

from howdah.errors import HowdahError
from howdah.postgres import sql
from howdah_lab.bench import pgbench
from howdah_lab.bench.scenario import LeftOut, Plan, Quantity, Scenario

NAME = "pgbench"
ROWS = 10_000


async def measure(plan: Plan) -> dict[str, float]:
    """Commits per second of one client."""
    program = pgbench.find()
    if program is None:
        raise LeftOut("it needs pgbench, which is neither beside the embedded PostgreSQL nor on PATH")
    rows, database = max(100, round(ROWS * plan.scale)), plan.schema.database
    statements = sql.load("howdah_lab.bench", schema=database.schema)
    rate = await pgbench.run_script(program, database.dsn, statements["pgbench_plain"], clients=1, each=rows)
    if (found := await plan.schema.conn.fetchval(statements["count_plain"])) != rows:
        raise HowdahError(f"{found:,} rows after {rows:,} inserts")
    return {"one": rate}


SCENARIO = Scenario(
    name=NAME,
    about="single inserts by pgbench, one client",
    quantities={"one": Quantity(title="one insert, one commit, one client", unit="rows/s")},
    measure=measure,
    share=ROWS / 50_000,
    ours_only=True,
    once=True,
)
"""Measured with the scenario ``enqueue``; it has no name on the command line."""
