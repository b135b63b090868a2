"""Servers with a standby: what a promotion keeps, and what it forgets."""

from __future__ import annotations

import asyncpg
import pytest

from howdah_lab.torture.servers.standby import AsynchronouslyReplicated, SynchronouslyReplicated
from kit.node import PATIENCE, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

LONG = 12 * PATIENCE
COUNT = "select count(*) from kept"


async def put(dsn: str, rows: int) -> None:
    """Insert so many rows, each in a commit that is acknowledged."""
    conn = await asyncpg.connect(dsn, timeout=PATIENCE)
    for _ in range(rows):
        await conn.execute("insert into kept default values")
    await conn.close()


async def value(dsn: str, question: str) -> object:
    conn = await asyncpg.connect(dsn, timeout=PATIENCE)
    found = await conn.fetchval(question)
    await conn.close()
    return found


@pytest.mark.timeout(300)
async def test_a_synchronous_standby_has_all_that_was_acknowledged():
    async with SynchronouslyReplicated() as place:
        await value(place.dsn, "create table kept (n bigserial)")
        for rows in (20, 40):
            await put(place.dsn, 20)
            await place.crash()
            await place.promote()
            assert await value(place.dsn, COUNT) == rows
            await place.writable(LONG)
            await place.follow()
            assert await value(place.dsn, "show synchronous_standby_names") == "*"


@pytest.mark.timeout(300)
async def test_a_standby_that_was_cut_off_lacks_what_came_later():
    async with AsynchronouslyReplicated() as place:
        await value(place.dsn, "create table kept (n bigserial)")
        await put(place.dsn, 10)
        standby = place.standby
        assert standby is not None

        async def has_all() -> bool:
            at = await value(place.dsn, "select pg_current_wal_lsn()::text")
            return bool(await value(standby.dsn, f"select pg_last_wal_replay_lsn() >= '{at}'"))

        await eventually(has_all, LONG)
        await place.cut_off()
        await put(place.dsn, 5)
        await place.crash()
        await place.promote()

        assert await value(place.dsn, COUNT) == 10
        await place.follow()
        assert await value(place.standby.dsn, COUNT) == 10
