"""A key whose holder ends while the caller's transaction keeps an older snapshot."""

from __future__ import annotations

import asyncpg
import pytest

from kit.interleave import switch_off
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

LEVELS = ["read_committed", "repeatable_read", "serializable"]


async def bulk(app, task, conn):
    [made] = await app.enqueue_many([task.using(key="k").job(2)], conn=conn)
    return made.id, made.fresh


async def single(app, task, conn):
    made = await app.enqueue(task.using(key="k").job(2), conn=conn)
    return made.id, made.fresh


async def sql(app, task, conn):
    return tuple(await conn.fetchrow("select id, fresh from howdah.enqueue('work', '{\"n\": 2}', key => 'k')"))


@pytest.fixture
def work(app):
    @app.task
    async def work(n: int) -> None: ...

    return work


@pytest.fixture
async def caller(direct):
    conn = await direct.connect("caller")
    yield conn
    conn.terminate()


@pytest.mark.parametrize("again", [bulk, single, sql])
@pytest.mark.parametrize("way", [bulk, single, sql])
@pytest.mark.parametrize("level", LEVELS)
async def test_the_key_of_a_job_that_has_ended_is_free(app, work, conn, caller, level, way, again):
    first = await work.using(key="k").enqueue(1)
    async with caller.transaction(isolation=level):
        await caller.fetchval("select count(*) from howdah.job")  # the snapshot
        await app.admin.cancel([first.id])
        made, fresh = await way(app, work, caller)
        assert fresh
        assert made > first.id
        assert await again(app, work, caller) == (made, False), "the second one is told of the first"

    assert await wrongs(conn) == []
    assert await work.using(key="k").enqueue(3) == await work.using(key="k").enqueue(4)
    assert await conn.fetchval("select count(*) from howdah.job") == 2


@pytest.mark.parametrize("way", [bulk, single, sql])
@pytest.mark.parametrize("level", LEVELS)
async def test_a_live_holder_is_named(app, work, caller, level, way):
    first = await work.using(key="k").enqueue(1)
    async with caller.transaction(isolation=level):
        assert await way(app, work, caller) == (first.id, False)


async def test_without_the_order_a_bulk_meets_two_rows(app, work, conn, caller):
    """The control."""
    await switch_off(conn, "take_keys", "order by k.id desc limit 1", "")
    first = await work.using(key="k").enqueue(1)
    transaction = caller.transaction(isolation="repeatable_read")
    await transaction.start()
    await caller.fetchval("select count(*) from howdah.job")
    await app.admin.cancel([first.id])
    with pytest.raises(asyncpg.CardinalityViolationError):
        await bulk(app, work, caller)
    await transaction.rollback()
