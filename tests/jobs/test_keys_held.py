"""A unique key that another transaction holds: a clear error, nothing enqueued, and no other job waits for it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from howdah import Howdah, KeyHeld, NewJob

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr("howdah.jobs.enqueue.KEY_WAIT", 1.0)


@pytest.fixture
def work(app: Howdah):
    @app.task
    async def work(n: int = 0) -> None: ...

    return work


@pytest.fixture
async def holder(direct):
    """A connection whose open transaction has enqueued the key."""
    conn = await direct.connect("holder")
    transaction = conn.transaction()
    await transaction.start()
    await conn.fetch("select * from howdah.enqueue('other', key => 'it''s held')")
    yield transaction
    if conn.is_in_transaction():
        await transaction.rollback()
    await conn.close()


KEY = "it's held"
WAYS = {
    "one": lambda app, work: work.using(key=KEY).enqueue(),
    "many": lambda app, work: app.enqueue_many([work.job(1), work.using(key="a").job(), work.using(key=KEY).job()]),
    "sync": lambda app, work: asyncio.to_thread(work.using(key=KEY).enqueue_sync),
}


@pytest.mark.parametrize("way", WAYS)
async def test_the_error_names_the_key_and_nothing_is_enqueued(app, work, conn, holder, way):
    with pytest.raises(KeyHeld, match='another transaction that is still open holds the key "it\'s held"') as caught:
        await WAYS[way](app, work)

    assert caught.value.key == KEY
    assert await conn.fetchval("select count(*) from howdah.job") == 0
    assert await conn.fetchval("select count(*) from howdah.job_key") == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_holder_that_ends_in_time_is_waited_for(app, work, conn, holder, way, monkeypatch):
    monkeypatch.setattr("howdah.jobs.enqueue.KEY_WAIT", 30.0)
    enqueueing = asyncio.create_task(WAYS[way](app, work))
    for _ in range(1000):
        if await conn.fetchval("select count(*) from pg_locks where not granted"):
            break
        await asyncio.sleep(0.02)
    await holder.rollback()

    made = await enqueueing
    last = made[-1] if isinstance(made, list) else made
    assert last.fresh
    assert await conn.fetchval("select id from howdah.job_key where key = $1", KEY) == last.id


async def test_many_held_keys_hold_up_no_other_key_and_no_caller_for_long(app, work, conn, direct):
    """Each of them would cost the batch a wait, and the callers wait in few connections."""
    other = await direct.connect("holder")
    transaction = other.transaction()
    await transaction.start()
    await other.fetch("select howdah.enqueue('other', key => 'held ' || n) from generate_series(1, 60) n")
    await work.using(key="connected").enqueue()
    clock = asyncio.get_running_loop().time
    began = clock()
    held = [asyncio.create_task(work.using(key=f"held {n}").enqueue()) for n in range(1, 61)]

    await work.using(key="free").enqueue()
    free = clock() - began
    found = await asyncio.gather(*held, return_exceptions=True)
    took = clock() - began

    assert {type(each) for each in found} == {KeyHeld}
    assert free < 5, "waited for the keys of others"
    assert took < 10, "waited for its turn behind others"
    assert await conn.fetchval("select count(*) from howdah.job") == 2
    await transaction.rollback()
    await other.close()


async def test_other_jobs_enqueued_at_the_same_time_do_not_wait(app, work, conn, holder, monkeypatch):
    monkeypatch.setattr("howdah.jobs.enqueue.KEY_WAIT", 30.0)
    await work.enqueue()  # connected
    stuck = [asyncio.create_task(work.using(key=KEY).enqueue()) for _ in range(10)]
    others = [work.using(key=f"key {n}").enqueue(n) for n in range(20)] + [work.enqueue(n) for n in range(20)]
    made = await asyncio.wait_for(asyncio.gather(*others), 20)

    assert all(each.fresh for each in made)
    assert not any(each.done() for each in stuck)
    await holder.rollback()
    held = await asyncio.gather(*stuck)
    assert sum(each.fresh for each in held) == 1
    assert len({each.id for each in held}) == 1


async def test_a_job_the_database_refuses_is_alone_with_its_error(app, work, conn):
    broken = NewJob(kind="work", payload=b'{"n": ')
    results = await asyncio.gather(
        *(work.enqueue(n) for n in range(30)),
        app.enqueue(broken),
        *(work.enqueue(n) for n in range(30)),
        return_exceptions=True,
    )

    assert [type(each) for each in results if isinstance(each, Exception)] == [asyncpg.InvalidTextRepresentationError]
    assert await conn.fetchval("select count(*) from howdah.job") == 60


async def test_in_the_callers_own_transaction_the_caller_waits(app, work, direct, conn, holder):
    own = await direct.connect("caller")
    enqueueing = asyncio.create_task(work.using(key=KEY, conn=own).enqueue())
    done, _ = await asyncio.wait([enqueueing], timeout=3)
    assert not done
    await holder.commit()
    assert not (await enqueueing).fresh
    await own.close()
