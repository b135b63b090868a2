"""Measure enqueues while partitions are created and dropped: `python -m howdah_lab.upkeep [--jobs 1000000] [--acts …]`.

A database with a partition full of old jobs is made once, and copied for every act. Clients enqueue at a fixed rate for
as long as the act lasts, and a few seconds longer; the latency of an enqueue is counted from the moment it should have
begun.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import Pruner, Retention
from howdah.postgres import migrate, sql
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from howdah.postgres.embedded.binaries import find

RATE, CLIENTS = 100, 4
"""Enqueues a second, and the connections that share them."""
TAIL = 2.0
"""Seconds that enqueues go on after the act."""
RELEASED = 5
"""Version of the schema of release 0.2."""
FILL = """
insert into howdah.job (id, queue, kind, args, enqueued_at)
select i, 'default', 'old', '{"n": 1}', now() - interval '21 days' from generate_series(1, $1::int8) i;
insert into howdah.done (id, attempt, state, finished_at, took_us)
select i, 1, (case when i % 100 = 0 then 'f' else 'd' end)::"char", now() - interval '20 days', 1000
from generate_series(1, $1::int8) i;
insert into howdah.attempt (id, attempt, outcome, error)
select i, 1, 'failed', 'E' from generate_series(100, $1::int8, 100) i;
select setval('howdah.job_id', greatest(1000000, $1) + 10), setval('howdah.arrival', 1);
"""

Act = Callable[[Database], Awaitable[Any]]


async def calm(_database: Database) -> None:
    """Do nothing for a while."""
    await asyncio.sleep(8)


async def prune(database: Database) -> Any:
    """Drop the old partition."""
    return await Pruner(database, Retention()).prune()


async def prune_eight(database: Database) -> Any:
    """Eight nodes drop it at once, as after a deployment."""
    pruned: list[Any] = await asyncio.gather(*(prune(database) for _ in range(8)), return_exceptions=True)
    return [each for each in pruned if isinstance(each, BaseException)] or sum(each.jobs for each in pruned)


async def reader(database: Database) -> Any:
    """Drop it while a transaction, as of a dump, reads the tables."""
    conn = await database.connect("dump")
    async with conn.transaction(isolation="repeatable_read"):
        await conn.fetchval("select count(*) from howdah.job where id < 10")
        await conn.fetchval("select count(*) from howdah.done")
        return await prune(database)


async def grow(database: Database) -> Any:
    """Eight nodes create partitions beside the same reader, every second."""
    statement = sql.load("howdah.maintenance", schema=database.schema)["grow"]
    conn, made = await database.connect("dump"), 0

    async def node() -> None:
        nonlocal made
        mine = await database.connect("node")
        for _ in range(5):
            try:
                made += await mine.fetchval(statement)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                pass
            await asyncio.sleep(1)
        mine.terminate()

    await conn.execute("select setval('howdah.job_id', 3500000)")
    async with conn.transaction(isolation="repeatable_read"):
        await conn.fetchval("select count(*) from howdah.job where id < 10")
        await conn.fetchval("select count(*) from howdah.job_default")
        await asyncio.gather(*(node() for _ in range(8)))
    await node()
    return made


async def nodes(database: Database) -> Any:
    """Eight nodes start at once while pg_dump reads: all maintenance loops, for a few seconds."""
    stop = asyncio.Event()
    dump = await asyncio.create_subprocess_exec(find().folder / "pg_dump", database.dsn, "--file=/dev/null")
    loops = [MaintenanceLoops(database, retention=Retention()).run(stop) for _ in range(8)]
    running = asyncio.gather(*loops, return_exceptions=True)
    await dump.wait()
    await asyncio.sleep(3)
    stop.set()
    ended = [each for each in await running if each is not None]
    conn = await database.connect("count")
    partitions = await conn.fetchval("select count(*) from pg_inherits where inhparent = 'howdah.job'::regclass")
    return f"pg_dump {dump.returncode}, {partitions} partitions, errors {ended}"


async def upgrade(database: Database) -> Any:
    """Migrate from release 0.2."""
    return [step.name for step in await migrate.migrate(database)]


ACTS: dict[str, Act] = {
    "calm": calm,
    "prune": prune,
    "8 prunes": prune_eight,
    "prune, reader": reader,
    "grow, reader": grow,
    "8 nodes, dump": nodes,
    "migrate": upgrade,
}


async def enqueue(dsn: str, stop: asyncio.Event, latencies: list[float]) -> None:
    """Enqueue at a fixed rate until ``stop``."""
    conn = await asyncpg.connect(dsn)
    due = time.perf_counter()
    while not stop.is_set():
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await conn.execute("select howdah.enqueue('new')")
        latencies.append(time.perf_counter() - due)
        due += CLIENTS / RATE
    await conn.close()


async def measure(database: Database, name: str, act: Act) -> None:
    """Print the latencies of enqueues while an act is under way."""
    stop, latencies, began = asyncio.Event(), list[float](), time.perf_counter()
    clients = [asyncio.create_task(enqueue(database.dsn, stop, latencies)) for _ in range(CLIENTS)]
    await asyncio.sleep(1)
    result, took = await act(database), time.perf_counter() - began - 1
    await asyncio.sleep(TAIL)
    stop.set()
    await asyncio.gather(*clients)
    latencies.sort()
    p50, p99, most = (latencies[int(len(latencies) * part)] * 1000 for part in (0.5, 0.99, 0.999999))
    print(f"{name:14} p50 {p50:7.1f}  p99 {p99:7.1f}  max {most:7.1f} ms  in {took:5.1f} s: {result}", flush=True)


async def main(jobs: int, acts: list[str]) -> None:
    """Make the database, and measure each act on a copy of it."""
    with embedded.start() as server:
        admin = await asyncpg.connect(server.dsn)
        await admin.execute("create database filled")
        filled = Database(server.dsn_for("filled"))
        every = migrate.migrations()
        migrate.migrations = lambda: every[:RELEASED]  # type: ignore[assignment]
        await migrate.migrate(filled)
        migrate.migrations = lambda: every  # type: ignore[assignment]
        conn = await filled.connect("fill")
        for statement in filter(str.strip, FILL.split(";")):
            await conn.execute(statement.replace("$1", str(jobs)), timeout=600)
        await conn.execute("vacuum analyze", timeout=600)
        await conn.close()
        for number, name in enumerate(acts):
            await admin.execute(f"create database d{number} template filled")
            database = Database(server.dsn_for(f"d{number}"))
            if name != "migrate":
                await migrate.migrate(database)
            await admin.execute("checkpoint")
            await measure(database, name, ACTS[name])
            await admin.execute(f"drop database d{number} with (force)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--acts", default=";".join(ACTS), help="names of acts, separated by semicolons")
    given = parser.parse_args()
    asyncio.run(main(given.jobs, [each.strip() for each in given.acts.split(";")]))
