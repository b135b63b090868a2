"""Ceiling: what this PostgreSQL commits, one insert at a time, with no queue at all."""

from __future__ import annotations

from howdah.errors import HowdahError
from howdah_lab.bench import pgbench
from howdah_lab.bench.scenario import Quantity
from howdah_lab.bench.server import PostgreSQL
from howdah_lab.bench.session import connected

NAME = "pgbench"
ABOUT = "single inserts by pgbench, one client"
QUANTITIES = {"one": Quantity(title="one insert, one commit, one client", unit="rows/s")}
ROWS = 10_000
DATABASE = "bench ceiling"
TABLE = "create table plain (id bigint generated always as identity primary key, args json not null)"
SCRIPT = """insert into plain (args) values
    ('{"user_id": 100000, "email": "user0@example.com", "template": "welcome", "number": 0, "tags": ["a", "b"]}');
"""


async def measure(postgresql: PostgreSQL, scale: float) -> dict[str, float]:
    """Commits a second."""
    program = pgbench.find()
    if program is None:
        raise HowdahError("pgbench is neither beside the embedded PostgreSQL nor on PATH")
    rows = max(100, round(ROWS * scale))
    await postgresql.make(DATABASE)
    try:
        async with connected(postgresql.dsn(DATABASE)) as conn:
            await conn.execute(TABLE)
            rate = await pgbench.run_script(program, postgresql.dsn(DATABASE), SCRIPT, clients=1, each=rows)
            if (found := await conn.fetchval("select count(*) from plain")) != rows:
                raise HowdahError(f"{found:,} rows after {rows:,} inserts")
    finally:
        await postgresql.drop(DATABASE)
    return {"one": rate}
