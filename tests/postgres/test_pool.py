"""A connection of a pool is given back after an error although its server does not answer."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import suppress

import asyncpg
import pytest

from howdah.postgres.database import Database
from kit.node import eventually

pytestmark = pytest.mark.anyio

SOON = 5.0
"""Seconds a statement may take, with room for a busy machine."""


@pytest.fixture
async def frozen(database):
    """A pool, and the process of its only connection, to be stopped by the test; it goes on at the end."""
    pool = await Database(database.dsn, command_timeout=SOON).pool(1)
    async with pool.acquire() as conn:
        pid = await conn.fetchval("select pg_backend_pid()")
    yield pool, pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    pool.terminate()


async def test_an_open_transaction_of_a_server_that_does_not_answer_ends_with_its_connection(frozen):
    pool, pid = frozen
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))

    async def use() -> None:
        async with pool.acquire() as conn:
            await conn.transaction().start()
            os.kill(pid, signal.SIGSTOP)
            raise LookupError("something else")

    with pytest.raises(LookupError):
        await use()
    async with pool.acquire() as conn:
        assert await conn.fetchval("select 1") == 1
    os.kill(pid, signal.SIGCONT)
    await _gone(pool, pid)
    gc.collect()
    await asyncio.sleep(0)
    assert not errors


async def test_a_connection_that_was_ended_inside_is_replaced(frozen):
    pool, pid = frozen

    async def use() -> None:
        async with pool.acquire() as conn:
            conn.terminate()
            await conn.fetchval("select 1")

    with pytest.raises(asyncpg.InterfaceError):
        await use()
    async with pool.acquire() as conn:
        assert await conn.fetchval("select pg_backend_pid()") != pid


async def _gone(pool, pid: int) -> None:
    """Wait until the server has ended a connection."""

    async def over() -> bool:
        async with pool.acquire() as conn:
            return not await conn.fetchval("select exists (select from pg_stat_activity where pid = $1)", pid)

    await eventually(over)
