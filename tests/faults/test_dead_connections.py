"""Connections without a time limit that go dead behind something that goes on answering for them."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from howdah import TransactionLost
from howdah.postgres import pool as pools
from howdah.postgres import settings
from howdah.postgres.database import Database
from howdah.postgres.settings import prepare
from howdah.postgres.transaction import transact
from howdah_lab.torture.context import through
from kit.node import eventually

pytestmark = pytest.mark.anyio

EVERY = 0.4
AGES = 600.0
"""Seconds the server would leave a transaction idle: far longer than any of this takes."""
BROKEN = (TransactionLost, asyncpg.PostgresConnectionError)


@pytest.fixture
async def conn(own_server):
    conn = await asyncpg.connect(own_server.dsn)
    await conn.execute("drop table if exists noted; create table noted (n int)")
    yield conn
    await conn.close()


@pytest.fixture
async def pool(own_server, proxy, conn, monkeypatch):
    monkeypatch.setattr(pools, "CHECK_INTERVAL", EVERY)
    monkeypatch.setattr(pools, "LATE_AFTER", EVERY)
    pool = await Database(through(own_server.dsn, proxy)).pool(2, command_timeout=None)
    yield pool
    pool.terminate()


async def nothing(*_):
    return None


async def note(tx):
    await tx.execute("insert into noted values (1)")


async def noted(conn):
    return await conn.fetchval("select count(*) from noted")


def dying(proxy, moment):
    """A body and a finish; the connection goes dead at this moment."""

    async def body(tx):
        if moment == "while the server works":
            asyncio.get_running_loop().call_later(0.2, proxy.kill, "pool")
            await tx.execute("select pg_sleep(0.4)")
        await note(tx)
        if moment == "before a statement":
            proxy.kill("pool")
            await tx.execute("select 1")
        if moment == "while the handler does something else":
            proxy.kill("pool")
            await asyncio.sleep(4)

    async def finish(_conn, _result):
        if moment == "before the commit":
            proxy.kill("pool")
        return "select 1" if moment == "before the commit" else None

    return body, finish


MOMENTS = ("before it begins", "before a statement", "while the server works", "before the commit")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_it_is_noticed_and_the_server_lets_go_of_its_locks(pool, proxy, conn, moment):
    await transact(pool, AGES, nothing, nothing)
    if moment == "before it begins":
        proxy.kill("pool")
    with pytest.raises(BROKEN):
        await asyncio.wait_for(transact(pool, AGES, *dying(proxy, moment)), 10)
    await eventually(lambda: is_free(conn))
    assert await noted(conn) == 0
    await asyncio.wait_for(transact(pool, AGES, note, nothing), 5)
    assert await noted(conn) == 1


async def is_free(conn):
    return not await conn.fetchval("select count(*) from pg_locks where relation = 'noted'::regclass")


async def test_who_keeps_the_transaction_alive_notices_it_too(pool, proxy, conn):
    with pytest.raises(BROKEN):
        await asyncio.wait_for(transact(pool, 3, *dying(proxy, "while the handler does something else")), 10)
    await eventually(lambda: is_free(conn))
    assert await noted(conn) == 0


async def test_the_others_of_the_pool_are_not_tried_one_after_the_other(pool, proxy):
    async with pool.acquire(), pool.acquire():
        pass
    assert pool.get_idle_size() == 2
    proxy.kill("pool")
    with pytest.raises(BROKEN):
        await asyncio.wait_for(transact(pool, AGES, nothing, nothing), 10)
    await asyncio.wait_for(asyncio.gather(*(transact(pool, AGES, note, nothing) for _ in range(4))), EVERY)


async def test_a_statement_outside_of_a_transaction_is_watched_too(pool, proxy):
    assert await pool.fetchval("select 1") == 1
    proxy.kill("pool")
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await asyncio.wait_for(pool.fetchval("select 1"), 10)
    assert await asyncio.wait_for(pool.fetchval("select 1"), 5) == 1


@pytest.mark.parametrize("asked", ["alone", "in a transaction"])
async def test_what_is_cancelled_on_a_dead_connection_ends(pool, proxy, asked):
    await pool.fetchval("select 1")
    proxy.kill("pool")
    asking = asyncio.create_task(
        pool.fetchval("select 1") if asked == "alone" else transact(pool, AGES, nothing, nothing)
    )
    await asyncio.sleep(0.1)
    asking.cancel()
    await asyncio.wait({asking}, timeout=10)
    assert asking.cancelled()
    assert await asyncio.wait_for(pool.fetchval("select 1"), 5) == 1


async def test_a_connection_that_dies_while_it_is_made_is_noticed(own_server, proxy, monkeypatch):
    async def dies(conn):
        monkeypatch.undo()
        proxy.kill("pool")
        await prepare(conn)

    pool = await Database(through(own_server.dsn, proxy), command_timeout=1.0).pool(1, command_timeout=None)
    monkeypatch.setattr(settings, "prepare", dies)
    asking = asyncio.create_task(pool.fetchval("select 1"))
    await asyncio.wait({asking}, timeout=10)
    assert asking.done()
    with pytest.raises(TimeoutError):
        await asking
    assert await asyncio.wait_for(pool.fetchval("select 1"), 5) == 1
    pool.terminate()


async def test_without_it_nobody_would_notice(pool, proxy):
    pool.watchdog = None
    await transact(pool, AGES, nothing, nothing)
    proxy.kill("pool")
    task = asyncio.create_task(transact(pool, AGES, nothing, nothing))
    _, waiting = await asyncio.wait({task}, timeout=10 * EVERY)
    assert waiting
    proxy.restore()
    with pytest.raises(BROKEN):
        await asyncio.wait_for(task, 5)


async def works(tx):
    await tx.execute("select pg_sleep($1)", 8 * EVERY)


async def does_something_else(tx):
    await tx.execute("select 1")
    await asyncio.sleep(8 * EVERY)


async def keeps_the_connection(tx):
    async with tx.use() as conn:
        await conn.execute("select 1")
        await asyncio.sleep(8 * EVERY)


async def asks_often(tx):
    for _ in range(40):
        await tx.execute("select pg_sleep(0.01)")
        await asyncio.sleep(EVERY / 5)


async def waits_for_a_lock(tx):
    await tx.execute("lock table noted")


@pytest.mark.parametrize("body", [works, does_something_else, keeps_the_connection, asks_often, waits_for_a_lock])
async def test_who_only_takes_long_is_left_alone(pool, conn, body):
    if body is waits_for_a_lock:
        lock = conn.transaction()
        await lock.start()
        await conn.execute("lock table noted")
        asyncio.get_running_loop().call_later(8 * EVERY, lambda: asyncio.ensure_future(lock.rollback()))
    await transact(pool, AGES, body, nothing)


async def test_it_leaves_no_connection_behind(pool, proxy, conn):
    await transact(pool, AGES, works, nothing)
    assert proxy.of("watch")
    await eventually(lambda: _none(proxy))


async def _none(proxy):
    return not proxy.of("watch")
