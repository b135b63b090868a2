"""Cancel, retry, pause, limits, order: what people ask of a queue."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Backoff, Poison, current_job
from kit.node import drain, ended, eventually, job, node, state

pytestmark = pytest.mark.anyio


@pytest.fixture
def note(app):
    seen: list[int] = []

    @app.task
    async def note(n: int) -> None:
        seen.append(n)

    note.seen = seen
    return note


async def cancel(conn, *ids):
    return [tuple(row) for row in await conn.fetch("select * from howdah.cancel($1)", list(ids))]


async def retry(conn, *ids):
    return [tuple(row) for row in await conn.fetch("select * from howdah.retry($1)", list(ids))]


async def nowhere_or_twice(conn):
    """The jobs that are not in exactly one place."""
    return await conn.fetch(
        """
        with place as (
            select i.id from howdah.ready r cross join lateral generate_series(r.lo, r.hi - 1) i(id)
            union all select id from howdah.later
            union all select id from howdah.done
            union all select i.id from howdah.lease l cross join lateral unnest(l.los, l.his) r(lo, hi)
                cross join lateral generate_series(r.lo, r.hi - 1) i(id)
                where not exists (select from howdah.gone g where g.token = l.token and g.id = i.id)
                  and not exists (select from howdah.done d where d.id = i.id))
        select j.id, (select count(*) from place p where p.id = j.id) as n from howdah.job j
        where (select count(*) from place p where p.id = j.id) <> 1
        """
    )


async def test_a_queued_job_is_cancelled_at_once_wherever_it_stands_in_its_run(app, note, conn):
    made = [each.id for each in await app.enqueue_many(note.job(i) for i in range(10))]
    later = (await note.using(delay=100).enqueue(99)).id

    result = await cancel(conn, made[0], made[4], made[9], later, 12345)

    assert result == [*((id, "cancelled") for id in (made[0], made[4], made[9], later)), (12345, "unknown")]
    assert await nowhere_or_twice(conn) == []
    await drain(app)
    assert sorted(note.seen) == [1, 2, 3, 5, 6, 7, 8]
    assert await state(conn, later) == "cancelled"
    assert await cancel(conn, made[0], made[1]) == [(made[0], "over"), (made[1], "over")]


async def test_a_running_job_is_cancelled_by_the_next_heartbeat(app, conn):
    started = asyncio.Event()

    @app.task
    async def long() -> None:
        started.set()
        await asyncio.sleep(60)

    made = await long.enqueue()
    async with node(app, heartbeat=0.2):
        await asyncio.wait_for(started.wait(), 30)
        assert await cancel(conn, made.id) == [(made.id, "asked")]
        assert (await job(conn, made.id))["cancel_asked"]
        row = await ended(conn, made.id)

    assert row["state"] == "cancelled"


async def test_success_after_a_cancel_request_is_still_success(app, conn):
    @app.task
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return

    made = await stubborn.enqueue()
    async with node(app, heartbeat=0.2):
        await eventually(lambda: _is(conn, made.id, "running"))
        await cancel(conn, made.id)
        assert (await ended(conn, made.id))["state"] == "done"


async def _is(conn, id, wanted):
    return await state(conn, id) == wanted


async def test_a_cancelled_job_is_not_retried(app, conn):
    gate = asyncio.Event()

    @app.task(retry=Backoff(first=0))
    async def fails() -> None:
        await gate.wait()
        raise RuntimeError("no")

    made = await fails.enqueue()
    async with node(app, heartbeat=30.0, lease=60.0):
        await eventually(lambda: _is(conn, made.id, "running"))
        await cancel(conn, made.id)
        gate.set()
        assert (await ended(conn, made.id))["state"] == "cancelled"


async def test_retry_starts_a_failed_job_anew(app, conn):
    heal = False

    @app.task
    async def broken() -> int:
        if not heal:
            raise Poison("broken")
        return current_job().attempt

    made = await broken.using(key="one").enqueue()
    await drain(app)
    assert await state(conn, made.id) == "failed"
    heal = True

    assert await retry(conn, made.id, 999) == [(made.id, "queued"), (999, "unknown")]
    assert await retry(conn, made.id) == [(made.id, "live")]
    assert not (await broken.using(key="one").enqueue()).fresh, "the key is held again"
    await drain(app)
    assert (await job(conn, made.id))["result"] == b"1"
    assert await retry(conn, made.id) == [(made.id, "done")]
    assert await nowhere_or_twice(conn) == []


async def test_retry_refuses_when_another_job_holds_the_key(app, note, conn):
    first = await note.using(key="k").enqueue(1)
    await cancel(conn, first.id)
    second = await note.using(key="k").enqueue(2)

    assert await retry(conn, first.id) == [(first.id, f"key held by job {second.id}")]
    assert await state(conn, first.id) == "cancelled"


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(app, note, conn):
    await conn.execute("select howdah.pause('default', 'a test')")
    made = await note.enqueue(1)
    other = await note.using(queue="other").enqueue(2)
    async with node(app, poll=90.0):
        await ended(conn, other.id)
        await asyncio.sleep(0.3)
        assert await state(conn, made.id) == "queued"
        await conn.execute("select howdah.resume('default')")
        assert (await ended(conn, made.id))["state"] == "done"


async def test_jobs_run_by_priority_then_arrival(app, note):
    for n, priority in ((1, 0), (2, 5), (3, -5), (4, 0), (5, 5)):
        await note.using(priority=priority).enqueue(n)
    await app.enqueue_many(note.job(n) for n in (6, 7, 8))
    await drain(app, slots=1)

    assert note.seen == [2, 5, 1, 4, 6, 7, 8, 3]


async def test_jobs_of_unknown_kinds_stay_queued(app, note, conn):
    id = await conn.fetchval("select id from howdah.enqueue('from_the_future')")
    made = await note.enqueue(1)
    await drain(app)

    assert (await state(conn, id), await state(conn, made.id)) == ("queued", "done")


async def test_a_queue_limit_holds(app, conn):
    running = {"mail": 0, "default": 0}
    most = {"mail": 0, "default": 0}

    @app.task
    async def works() -> None:
        queue = current_job().queue
        running[queue] += 1
        most[queue] = max(most[queue], running[queue])
        await asyncio.sleep(0.02)
        running[queue] -= 1

    await app.enqueue_many([works.using(queue="mail").job() for _ in range(30)] + [works.job() for _ in range(30)])
    await drain(app, queues={"mail": 3, "default": None}, slots=20)

    assert most["mail"] == 3
    assert 3 < most["default"] <= 20
    assert await conn.fetchval("select count(*) from howdah.done") == 60


async def test_only_the_named_queues_are_served(app, note, conn):
    mail = await note.using(queue="mail").enqueue(1)
    rest = await note.using(queue="rest").enqueue(2)
    await drain(app, queues={"mail": None})

    assert (await state(conn, mail.id), await state(conn, rest.id)) == ("done", "queued")


async def test_no_more_than_the_slots_run_at_once(app):
    running = most = 0

    @app.task
    async def works() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    await app.enqueue_many(works.job() for _ in range(400))
    await drain(app, slots=7)
    assert most == 7


async def test_a_claim_never_leaves_jobs_waiting_behind_a_slow_one(app, conn):
    """Short jobs teach the node to claim ahead; then a slow one comes. What it had claimed goes to an idle node."""
    hold = asyncio.Event()
    ran: dict[int, int] = {}

    @app.task
    async def short(n: int) -> None:
        ran[n] = 1

    @app.task
    async def slow() -> None:
        await hold.wait()

    await app.enqueue_many(short.job(n) for n in range(2000))
    await app.enqueue_many([slow.job(), slow.job()] + [short.job(n) for n in range(2000, 2100)])
    async with node(app, slots=2):
        await eventually(lambda: _count(conn, "running", 2, "slow"))
        async with node(app, slots=2):
            await eventually(lambda: _len(ran, 2100))
        hold.set()
    assert await nowhere_or_twice(conn) == []
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0


async def _count(conn, state, n, kind):
    return await conn.fetchval("select count(*) from howdah.jobs where state = $1 and kind = $2", state, kind) == n


async def _len(what, n):
    return len(what) == n


async def test_fifty_jobs_and_eight_nodes_each_exactly_once(app, conn):
    runs: list[int] = []

    @app.task
    async def once(n: int) -> None:
        runs.append(n)
        await asyncio.sleep(0.01)

    await app.enqueue_many(once.job(n) for n in range(50))
    await asyncio.gather(*(drain(app, slots=3) for _ in range(8)))

    assert sorted(runs) == list(range(50))
    assert await conn.fetchval("select count(*) from howdah.done where attempt = 1") == 50


async def test_the_state_of_every_job_is_plain_sql(app, note, conn):
    queued, later, gone = [(await note.enqueue(i)).id for i in range(3)]
    await cancel(conn, gone)
    await conn.execute("select howdah.pause('default')")
    scheduled = (await note.using(delay=60).enqueue(9)).id

    rows = await conn.fetch("select id, state, run_at > now() as ahead from howdah.jobs order by id")
    assert [tuple(row) for row in rows] == [
        (queued, "queued", False),
        (later, "queued", False),
        (gone, "cancelled", False),
        (scheduled, "queued", True),
    ]
