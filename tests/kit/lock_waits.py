"""Measures waits for locks, as the server sees them: a slow machine does not count as a lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from howdah.postgres.database import Database
from kit.node import eventually

EVERY = 0.02

WAITING = """
    select l.pid, a.application_name as name, extract(epoch from clock_timestamp() - l.waitstart)::float8 as seconds
    from pg_locks l
    join pg_stat_activity a on a.pid = l.pid
    where a.datname = current_database()
      and not l.granted
      and l.waitstart is not null
"""


class LockWaits:
    """Samples the lock waits of one database while the block lasts."""

    def __init__(self, database: Database, *, besides: str) -> None:
        self._database = database
        self._besides = f"howdah {besides}"
        self.longest = 0.0
        """Seconds, of everybody but the one who is to wait."""
        self.held_up = 0
        """Looks at which that one had to wait."""
        self._over = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._conn = await self._database.connect("waits")
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await self._watching
        await self._conn.close()

    async def _watch(self) -> None:
        while not self._over.is_set():
            rows: list[Any] = await self._conn.fetch(WAITING)
            self.held_up += any(row["name"] == self._besides for row in rows)
            self.longest = max([self.longest, *(row["seconds"] for row in rows if row["name"] != self._besides)])
            await asyncio.sleep(EVERY)


class OpenEnqueue:
    """A transaction that has enqueued a job and is not committed."""

    def __init__(self, conn: Any) -> None:
        self.pid = conn.get_server_pid()
        self._conn = conn
        self._transaction = conn.transaction()

    async def hold(self) -> None:
        await self._transaction.start()
        await self._conn.execute("select howdah.enqueue('held')")

    async def commit(self) -> None:
        await self._transaction.commit()


CLAIM_WAITS = """
    select exists (
        select from pg_stat_activity where $1 = any(pg_blocking_pids(pid))  -- a pooler hides whose session it is
    )
"""


@asynccontextmanager
async def claims_held_up(database: Database) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """No claim is answered before the block ends; gives a function that waits until one has come."""
    conn = await database.connect("holds up")
    watch = await database.connect("waits")
    try:
        async with conn.transaction():
            await conn.execute("lock table howdah.ready in share mode")
            yield lambda: eventually(lambda: watch.fetchval(CLAIM_WAITS, conn.get_server_pid()))
    finally:
        await conn.close()
        await watch.close()
