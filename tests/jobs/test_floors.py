"""Claims and wake-ups beside jobs that are not served here, and beside dead rows: they start above them.

Jobs can appear below the floor from which such claims start. Each way in which they do is tried: a node that sleeps,
and polls once an hour, must start them.
"""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome

pytestmark = pytest.mark.anyio

UNSERVED = """
insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
select i, i + 1, $2, 0, $1, 'unserved' from generate_series(1000000, 1004999) i
"""


@pytest.fixture(autouse=True)
def always_checked(monkeypatch):
    """However fast the machine is."""
    monkeypatch.setattr("howdah.jobs.claim.SLOW", -1.0)


@pytest.fixture
async def tasks(app):
    @app.task
    async def note(n: int) -> None: ...

    @app.task
    async def mail(n: int) -> None: ...

    return note, mail


@pytest.fixture
async def stores(app, direct, tasks):
    pool, made, stop = await direct.pool(1), [], asyncio.Event()

    def store(node=1, **more):
        options = {"kinds": ["note", "mail"], "queues": None, "lease": 30, "poll": 3600, "notify": True, **more}
        made.append(JobStore(direct, node, pool=pool, **options))
        listening.append(asyncio.create_task(made[-1].listen(stop)))
        return made[-1]

    listening: list[asyncio.Task[None]] = []
    yield store
    stop.set()
    await asyncio.gather(*listening)
    for each in made:
        await each.close()
    pool.terminate()


async def until_asleep(store):
    """Claim and wait as a worker does, until the worker would sleep."""
    while store.deaf:
        await asyncio.sleep(0.01)
    while True:
        assert await store.claim(10, {}) == []
        try:
            await asyncio.wait_for(store.rest(), 1.5)
        except TimeoutError:
            return


async def next_jobs(store, seconds=20.0):
    """Wait and claim as a worker does, until there are jobs."""
    async with asyncio.timeout(seconds):
        while True:
            await store.rest()
            if jobs := await store.claim(10, {}):
                return jobs


def expensive(store):
    return store._claimer._scope.expensive


async def test_a_look_over_jobs_that_are_not_served_is_not_repeated_by_the_wake_up(stores, conn, tasks):
    await conn.execute(UNSERVED, "default", 0)
    store = stores()
    await until_asleep(store)
    assert expensive(store)

    made = await tasks[0].enqueue(1)
    before = await read_entries(store)
    jobs = await next_jobs(store)
    assert [job.id for job in jobs] == [made.id]
    assert await read_entries(store) - before < 1000


async def read_entries(store):
    """Entries of the index that the connection for claims has read."""
    async with store._claims.use() as conn:
        return await conn.fetchval("select pg_stat_get_xact_tuples_returned('howdah.ready_order'::regclass)")


async def test_without_a_floor_the_same_wake_up_reads_them_all(stores, conn, tasks):
    await conn.execute(UNSERVED, "default", 0)
    store = stores()
    await until_asleep(store)

    await tasks[0].enqueue(1)
    store.forget()
    before = await read_entries(store)
    await next_jobs(store)
    assert await read_entries(store) - before > 4000


async def test_dead_rows_that_a_snapshot_keeps_are_not_read_again(stores, conn, direct, tasks):
    old = await asyncpg.connect(direct.dsn)
    await old.execute("begin isolation level repeatable read")
    await old.execute("select count(*) from howdah.ready")
    await conn.execute(UNSERVED.replace("unserved", "note"), "default", 0)
    await conn.execute("delete from howdah.ready")
    await conn.execute("insert into howdah.lane values ('default', 0)")
    store = stores()
    await until_asleep(store)
    assert expensive(store)

    made = await tasks[0].enqueue(1)
    before = await read_entries(store)
    assert [job.id for job in await next_jobs(store)] == [made.id]
    assert await read_entries(store) - before < 1000
    await old.close()


async def test_cheap_looks_have_no_floor(stores, conn, tasks):
    await conn.execute(UNSERVED.replace("1004999", "1000100"), "default", 0)
    store = stores()
    await until_asleep(store)
    assert not expensive(store)


async def late_commit(store, stores, conn, direct, task):
    other = await asyncpg.connect(direct.dsn)
    await other.execute("begin")
    made = await task.using(conn=other).enqueue(1)
    await conn.execute(UNSERVED, "default", 0)
    yield made.id
    await other.execute("commit")
    await other.close()
    yield


async def released(store, stores, conn, direct, task):
    made = await task.enqueue(1)
    other = stores(2)
    [job] = await next_jobs(other)
    await conn.execute(UNSERVED, "default", 0)
    yield made.id
    await other.release([job.token])
    yield


async def reset(store, stores, conn, direct, task):
    made = await task.enqueue(1)
    await next_jobs(stores(2))
    await conn.execute(UNSERVED, "default", 0)
    yield made.id
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
    await store.reset()
    yield


async def retried(store, stores, conn, direct, task):
    made = await task.enqueue(1)
    other = stores(2)
    [job] = await next_jobs(other)
    await conn.execute(UNSERVED, "default", 0)
    yield made.id
    await other.ack([Ack(job, Outcome.RETRY, 1, error="E", delay=0.5)], [job.token])
    store._wakeup.expect(0.5)  # as the worker whose job it was
    yield


async def promoted_by_another_node(store, stores, conn, direct, task):
    """Promoted jobs arrive anew; here the other node promotes one and does not claim it."""
    made = await task.using(delay=3600).enqueue(1)
    await conn.execute(UNSERVED, "default", 0)
    yield made.id
    await conn.execute("update howdah.later set due_at = now()")
    await stores(2, kinds=["other"]).claim(10, {})
    await conn.execute("select howdah.notify_workers('default')")
    yield


async def hold_ended(store, stores, conn, direct, task):
    made = await task.enqueue(1)
    await conn.execute("insert into howdah.hold (kind, until, reason) values ('note', now() + interval '6 s', '429')")
    await conn.execute(UNSERVED, "default", 0)
    yield made.id
    yield


async def resumed(store, stores, conn, direct, task):
    made = await task.enqueue(1)
    await conn.execute("insert into howdah.queue (name, paused) values ('default', true)")
    await conn.execute(UNSERVED, "busy", 0)
    await conn.execute("insert into howdah.lane values ('busy', 0)")
    yield made.id
    await conn.execute("select howdah.resume('default')")
    yield


async def moved(store, stores, conn, direct, task):
    made = await task.using(queue="paused").enqueue(1)
    await conn.execute("insert into howdah.queue (name, paused) values ('paused', true)")
    await conn.execute(UNSERVED, "default", 0)
    await conn.execute("insert into howdah.lane values ('default', 0)")
    yield made.id
    await conn.execute("select howdah.move_or_reprioritize(array[$1::bigint], null, 'default', null, 'moved')", made.id)
    yield


async def reprioritized(store, stores, conn, direct, task):
    """An open transaction holds the job until its priority is changed."""
    made = await task.enqueue(1)
    other = await asyncpg.connect(direct.dsn)
    await other.execute("begin")
    await other.execute("select howdah.move_or_reprioritize(array[$1::bigint], null, null, 7, 'done')", made.id)
    await conn.execute(UNSERVED, "default", 9)
    await conn.execute("insert into howdah.lane values ('default', 9)")
    yield made.id
    await other.execute("commit")
    await other.close()
    yield


async def unlocked(store, stores, conn, direct, task):
    """Another session had locked the row of the job, and leaves it as it was."""
    made = await task.enqueue(1)
    other = await asyncpg.connect(direct.dsn)
    await other.execute("begin")
    await other.execute("select 1 from howdah.ready for update")
    await conn.execute(UNSERVED, "default", 9)
    await conn.execute("insert into howdah.lane values ('default', 9)")
    yield made.id
    await other.execute("rollback")
    await other.close()
    await conn.execute("select howdah.notify_workers('default')")
    yield


WAYS = [
    late_commit,
    released,
    reset,
    retried,
    promoted_by_another_node,
    hold_ended,
    resumed,
    moved,
    reprioritized,
    unlocked,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_job_that_appears_below_the_floor_is_found(way, stores, conn, direct, tasks):
    store = stores()
    steps = way(store, stores, conn, direct, tasks[0])
    id = await anext(steps)
    await settle(store)
    assert expensive(store)

    began = time.monotonic()
    await anext(steps)
    jobs = await next_jobs(store)
    assert [job.id for job in jobs] == [id]
    assert time.monotonic() - began < 15


async def settle(store):
    """As :func:`until_asleep`, also while an open transaction keeps the worker awake."""
    until = time.monotonic() + 2.0
    while store.deaf or time.monotonic() < until:
        assert await store.claim(10, {}) == []
        try:
            await asyncio.wait_for(store.rest(), 0.5)
        except TimeoutError:
            return


async def test_a_busy_claim_walks_over_them_once_and_not_every_time(stores, conn, tasks):
    await conn.execute(UNSERVED, "a", 0)
    await conn.execute("insert into howdah.lane values ('a', 0)")
    for n in range(60):
        await tasks[0].using(queue="b").enqueue(n)
    store = stores()
    got = []
    for _ in range(6):
        got += await store.claim(2, {"b": 2})
    before = await read_entries(store)
    for _ in range(6):
        got += await store.claim(2, {"b": 2})
    assert len(got) == 24
    assert await read_entries(store) - before < 2000


async def test_higher_priorities_are_served_first_although_they_were_passed(stores, conn, tasks):
    """The floor of a queue in which a claim ended holds for the priorities above it, and for old jobs only."""
    await conn.execute(UNSERVED, "default", 9)
    await conn.execute("insert into howdah.lane values ('default', 9)")
    for n in range(40):
        await tasks[0].enqueue(n)
    store = stores()
    for _ in range(3):
        await store.claim(2, {})
        await asyncio.sleep(0.06)
    assert expensive(store)

    first = await tasks[0].using(priority=9).enqueue(1)
    second = await tasks[0].using(priority=5).enqueue(1)
    assert [job.id for job in await store.claim(2, {})] == [first.id, second.id]
