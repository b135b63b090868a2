"""Probe that a server accepts writes, by writing."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import asyncpg

from howdah.errors import DatabaseUnreachable

# Written to the log of the server and, where there is a synchronous standby, to that one's too; it is never read.
WRITE = "select pg_logical_emit_message(true, 'howdah', 'is anybody there?')"
LOOK_EVERY = 0.05
ANSWER_WITHIN = 3.0
SESSION_SETTINGS = 3.0
"""Seconds for which writes have to be accepted."""
STALL = 1.0
"""Seconds of waiting that are as good as a refusal."""


async def until_writable(dsn: str, timeout: float, write: str = WRITE) -> float:
    """Wait until a write is accepted; returns the monotonic moment, or raises after ``timeout`` seconds."""
    until = time.monotonic() + timeout
    while True:
        try:
            return await _write(dsn, write)
        except (
            OSError,
            TimeoutError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
        ) as error:
            if time.monotonic() > until:
                raise DatabaseUnreachable(f"the server took no write in {timeout:g} s: {error!r}") from error
        await asyncio.sleep(LOOK_EVERY)


async def until_steady(dsn: str, timeout: float) -> float:
    """Wait until writes are accepted and stay so; returns the monotonic moment from which on they were.

    A new primary takes writes, and then keeps them waiting for a standby that is not there yet: it takes none.
    """
    until = time.monotonic() + timeout
    since = await until_writable(dsn, timeout)
    while (began := time.monotonic()) < min(since + SESSION_SETTINGS, until):
        moment = await until_writable(dsn, until - began)
        if moment - began > STALL:
            since = moment
        await asyncio.sleep(LOOK_EVERY)
    return since


async def _write(dsn: str, write: str) -> float:
    conn = await asyncpg.connect(dsn, timeout=ANSWER_WITHIN, command_timeout=ANSWER_WITHIN, statement_cache_size=0)
    try:
        await conn.execute(write)
        return time.monotonic()
    finally:
        with suppress(Exception):
            await conn.close(timeout=1)
