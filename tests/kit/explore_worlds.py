"""The worlds of the explorer, each prepared in a database with connections to look and to act."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from howdah.postgres.database import Database
from kit import explore_consumers, explore_jobs, explore_rows
from kit.explore_bugs import Bug
from kit.explore_sleeps import add_sleeps
from kit.roles import worker

DOERS = 3
WORLDS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "jobs": (explore_jobs.Jobs, explore_jobs.SLOWED),
    "rows": (explore_rows.Table, explore_rows.SLOWED),
    "consumers": (explore_consumers.Log, explore_consumers.SLOWED),
}
"""Each by name, with the tables in which writers are slowed down."""
DEADLOCKS = """
do $$ begin execute format('alter database %I set deadlock_timeout = %L', current_database(), '50ms'); end $$
"""
"""By default a deadlock is looked for after a second, and a round would take that long."""


@asynccontextmanager
async def prepared(name: str, database: Database, bug: Bug | None = None) -> AsyncIterator[tuple[Any, list[Any]]]:
    """A world and its connections; with a bug in it, if one is given."""
    make, tables = WORLDS[name]
    watch = await database.connect("watch")
    await watch.execute(DEADLOCKS)
    ours = worker(database)
    conns = [watch, *[await ours.connect(f"doer {number}") for number in range(DOERS)]]
    try:
        world = make()
        await world.prepare(watch, database)
        async with bug.planted(watch, world) if bug else nullcontext():
            await add_sleeps(watch, tables)
            yield world, conns
    finally:
        for conn in conns:
            conn.terminate()
