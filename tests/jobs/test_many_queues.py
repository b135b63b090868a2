"""Thousands of queues: claims look at those with jobs only, in turn, and find every job."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from howdah.jobs.scope import FEW
from howdah.jobs.store import JobStore
from kit.node import POLL_ONLY, ended, eventually, node

pytestmark = pytest.mark.anyio

QUEUES = 2 * FEW
IDLE = f"insert into howdah.lane select 'idle ' || i, 0 from generate_series(1, {QUEUES}) i"


@pytest.fixture
async def note(app):
    @app.task
    async def note(n: int = 0) -> None: ...

    return note


@pytest.fixture
async def stores(direct, note):
    pool, made = await direct.pool(1), []

    def store(queues=None, node=1, **more):
        options = {"kinds": ["note"], "lease": 30, "poll": 1, "notify": False, **more}
        made.append(JobStore(direct, node, queues=queues, pool=pool, **options))
        return made[-1]

    yield store
    for each in made:
        await each.close()
    pool.terminate()


async def test_every_queue_is_served_before_one_is_served_twice(stores, conn, note):
    names = [f"tenant {i:03}" for i in range(FEW + 50)]
    for n in range(3):
        for name in names:
            await note.using(queue=name).enqueue(n)
    store = stores()
    served = []
    while jobs := await store.claim(1, {}):
        served += [job.queue for job in jobs]

    assert len(served) == 3 * len(names)
    for turn in range(3):
        assert sorted(served[turn * len(names) :][: len(names)]) == names


async def test_a_full_queue_does_not_keep_the_others_waiting(stores, conn, note):
    await conn.execute(IDLE)
    for n in range(120):
        await note.using(queue="busy").enqueue(n)
    store = stores()
    assert {job.queue for job in await store.claim(10, {})} == {"busy"}
    await note.using(queue="another").enqueue()
    await asyncio.sleep(0.3)

    claims = [{job.queue for job in await store.claim(10, {})} for _ in range(3)]
    assert any("another" in queues for queues in claims)


async def test_priorities_and_arrival_order_hold_within_a_queue(stores, conn, note):
    await conn.execute(IDLE)
    ids = [(await note.using(queue="busy", priority=priority).enqueue()).id for priority in (0, 5, 0, 9, 5, -3)]
    store = stores()
    claimed = []
    while jobs := await store.claim(2, {}):
        claimed += [ids.index(job.id) for job in jobs]

    assert claimed == [3, 1, 4, 0, 2, 5]


async def test_limits_of_queues_hold(stores, conn, note):
    await conn.execute(IDLE)
    for queue in ("a", "b", "c"):
        for n in range(5):
            await note.using(queue=queue).enqueue(n)
    jobs = await stores().claim(100, {"a": 0, "b": 2})

    assert sorted(job.queue for job in jobs) == ["b"] * 2 + ["c"] * 5


async def test_more_busy_queues_than_one_statement_takes(stores, conn, note, monkeypatch):
    monkeypatch.setattr("howdah.jobs.scope.BATCH", 7)
    await conn.execute(
        f"""
        insert into howdah.lane select 'tenant ' || i, 0 from generate_series(1, {QUEUES}) i;
        insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
        select 1000000 + i, 1000001 + i, 0, 0, 'tenant ' || i, 'unserved' from generate_series(1, {QUEUES}) i
        """
    )
    made = await note.using(queue="tenant 99").enqueue()
    assert [job.id for job in await stores().claim(10, {})] == [made.id]


@pytest.mark.parametrize(
    "queues", [None, ["mail"], [f"queue {i}" for i in range(QUEUES)] + ["mail"]], ids=["all", "one", "many"]
)
async def test_a_pair_that_is_missing_in_lane_is_added(stores, conn, note, queues):
    """As after a prune beside an enqueue that was still open."""
    made = await note.using(queue="mail", priority=7).enqueue()
    await conn.execute("delete from howdah.lane")
    await conn.execute("insert into howdah.lane values ('mail', 0)")
    store = stores(queues)

    async def found():
        return [job.id for job in await store.claim(10, {})] == [made.id]

    assert await eventually(found, 10)
    assert [tuple(row) for row in await conn.fetch("select * from howdah.lane order by 2")] == [
        ("mail", 0),
        ("mail", 7),
    ]


async def test_queues_that_are_served_elsewhere_wake_nobody(stores, note):
    named, labelled = stores(["mail"], labels=["gpu"]), stores(None)
    for store in (named, labelled):
        store.notify("other")
        store.notify("other+gpu")

    assert not named._wakeup._notified.is_set()
    assert labelled._wakeup._notified.is_set()
    named.notify("mail+gpu")
    assert named._wakeup._notified.is_set()


@pytest.mark.skipif(POLL_ONLY, reason="no notification arrives here")
async def test_a_job_of_any_queue_wakes_a_node_at_once(app, conn, note):
    await conn.execute(IDLE)
    async with node(app, poll=60.0) as running_node:

        async def asleep():
            open = running_node.open
            return open and not open[0].store.deaf and open[0].store._wakeup._asleep

        waits = []
        for queue in ("idle 17", "new", "idle 18", "idle 17"):
            await eventually(asleep)
            await asyncio.sleep(0.2)
            began = time.monotonic()
            made = await note.using(queue=queue).enqueue()
            await ended(conn, made.id)
            waits.append(time.monotonic() - began)
    assert max(waits) < 25, "only the poll found it"
    assert min(waits) < 1


async def test_a_job_that_is_enqueued_while_the_worker_falls_asleep_is_found(stores, conn, direct, note):
    """In a queue that had no job before: the queues are read again after the announcement."""
    await conn.execute(IDLE)
    store = stores(notify=False, poll=3600)
    assert await store.claim(10, {}) == []
    other = await asyncpg.connect(direct.dsn)
    await other.execute("begin")
    made = await note.using(conn=other, queue="idle 42").enqueue()
    await store.rest()  # announced; the transaction is open
    assert await store.claim(10, {}) == []
    await other.execute("commit")
    await other.close()

    await store.rest()
    assert [job.id for job in await store.claim(10, {})] == [made.id]


async def test_when_few_queues_are_left_all_of_them_are_looked_at_again(stores, conn, note):
    await conn.execute(IDLE)
    store = stores()
    scope = store._claimer._scope
    assert await store.claim(10, {}) == []
    assert (scope.many, scope.queues) == (True, [])

    await conn.execute("delete from howdah.lane where queue <> 'idle 1'")
    store._claimer._swept = 0.0
    assert await store.claim(10, {}) == []
    assert (scope.many, scope.queues) == (False, ["idle 1"])
