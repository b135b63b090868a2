"""Servers with a standby: what a promotion keeps, and what it forgets."""

from __future__ import annotations

import asyncpg
import pytest

from howdah_lab.torture.servers.standby import AsynchronouslyReplicated, SynchronouslyReplicated
from kit.node import EVENTUALLY_TIMEOUT, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

LONG = 12 * EVENTUALLY_TIMEOUT
COUNT = "select count(*) from kept"


async def put(dsn: str, rows: int) -> None:
    """Insert so many rows, each in a commit that is acknowledged."""
    conn = await asyncpg.connect(dsn, timeout=EVENTUALLY_TIMEOUT)
    for _ in range(rows):
        await conn.execute("insert into kept default values")
    await conn.close()


async def value(dsn: str, question: str) -> object:
    conn = await asyncpg.connect(dsn, timeout=EVENTUALLY_TIMEOUT)
    found = await conn.fetchval(question)
    await conn.close()
    return found


@pytest.mark.timeout(300)
async def test_a_synchronous_standby_has_all_that_was_acknowledged():
    async with SynchronouslyReplicated() as server:
        await value(server.dsn, "create table kept (n bigserial)")
        for rows in (20, 40):
            await put(server.dsn, 20)
            await server.crash()
            await server.promote()
            assert await value(server.dsn, COUNT) == rows
            await server.writable(LONG)
            await server.follow()
            assert await value(server.dsn, "show synchronous_standby_names") == "*"


@pytest.mark.timeout(300)
async def test_a_standby_that_was_cut_off_lacks_what_came_later():
    async with AsynchronouslyReplicated() as server:
        await value(server.dsn, "create table kept (n bigserial)")
        await put(server.dsn, 10)
        standby = server.standby
        assert standby is not None

        async def has_all() -> bool:
            at = await value(server.dsn, "select pg_current_wal_lsn()::text")
            return bool(await value(standby.dsn, f"select pg_last_wal_replay_lsn() >= '{at}'"))

        await eventually(has_all, LONG)
        await server.cut_off()
        await put(server.dsn, 5)
        await server.crash()
        await server.promote()

        assert await value(server.dsn, COUNT) == 10
        await server.follow()
        assert await value(server.standby.dsn, COUNT) == 10
