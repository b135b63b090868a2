"""Watching the gate of the log from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

Connect = Callable[[], Awaitable[Any]]

APPEND = "select position from howdah.append($1, $2::text::json)"


async def append(conn: Any, stream: str = "S-1", events: int = 1) -> int:
    """Append through the function; returns the last position."""
    return int(await conn.fetchval(APPEND, stream, json.dumps([{"type": "X"}] * events)))


class Watch:
    """Somebody who reads the frontier."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    async def safe(self) -> int:
        return int(await self.conn.fetchval("select safe from howdah.frontier()"))

    async def frontier(self) -> tuple[int, int, bool]:
        head, safe, held = await self.conn.fetchrow("select head, safe, held from howdah.frontier()")
        return head, safe, held

    async def gates(self) -> int:
        """Locks that hold the frontier back."""
        return int(
            await self.conn.fetchval(
                "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ShareLock'"
                " and classid = 'howdah.event'::regclass"
            )
        )


async def until(read: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Wait until ``look`` says what is wanted."""
    async with asyncio.timeout(30):
        while await read() != wanted:
            await asyncio.sleep(0.01)


async def waits(watch: Watch, conn: Any) -> None:
    """Wait until a connection waits for a lock."""
    state = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1"
    await until(lambda: watch.conn.fetchval(state, conn.get_server_pid()), True)


@asynccontextmanager
async def connections_to(dsn: str) -> AsyncIterator[Connect]:
    """Connections to any server, all closed in the end."""
    opened: list[Any] = []

    async def connect() -> Any:
        opened.append(await asyncpg.connect(dsn, command_timeout=30))
        return opened[-1]

    try:
        yield connect
    finally:
        for conn in opened:
            conn.terminate()
