"""Leases, heartbeats, reset, fencing."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import ConfigError, WorkerOptions, telemetry
from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome
from kit.node import ended, eventually, job, node, state

pytestmark = pytest.mark.anyio


@pytest.fixture
def note(app):
    @app.task(max_attempts=3)
    async def note(n: int = 0) -> None: ...

    return note


@pytest.fixture
async def store_for(app, database):
    """Stores of nodes that only do what the test says."""
    pool = await database.pool(2)
    stores = []

    def make(node: int, lease: float = 30.0) -> JobStore:
        store = JobStore(
            database, node, kinds=list(app.tasks), queues=None, lease=lease, poll=1, notify=False, pool=pool
        )
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()
    pool.terminate()


async def expire(conn):
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")


def done(job, outcome=Outcome.OK, **facts):
    return Ack(job, outcome, 5, **facts)


async def test_an_expired_lease_is_reset_and_its_zombie_refused(app, note, conn, store_for):
    slow, fast = store_for(1), store_for(2)
    made = await note.enqueue()
    [late] = await slow.claim(1, {})
    await expire(conn)
    assert await fast.reset() == (1, 1, 0)
    [fresh] = await fast.claim(1, {})

    assert await slow.ack([done(late)], [late.token]) == []
    assert await slow.ack([done(late, Outcome.RETRY, error="E")], [late.token]) == []
    assert await slow.release([late.token]) == 0
    assert fresh.token > late.token
    assert (fresh.attempt, late.attempt) == (2, 1)
    assert len(await fast.ack([done(fresh)], [fresh.token])) == 1
    row = await job(conn, made.id)
    assert (row["state"], row["attempt"], row["node"], row["resets"]) == ("done", 2, 2, 1)


async def test_a_reset_keeps_what_was_already_done(app, note, conn, store_for):
    store = store_for(1)
    await app.enqueue_many(note.job(n) for n in range(100))
    jobs = await store.claim(100, {})
    await store.ack([done(each) for each in jobs[::2]], [])
    retried = [done(each, Outcome.RETRY, error="E", delay=50) for each in jobs[1:20:2]]
    await store.ack(retried, [])
    await expire(conn)

    assert await store.reset() == (1, 40, 0)
    assert await conn.fetchval("select count(*) from howdah.done") == 50
    assert await conn.fetchval("select count(*) from howdah.later") == 10
    assert await conn.fetchval("select sum(hi - lo) from howdah.ready where attempt = 1") == 40
    assert await conn.fetchval("select count(*) from howdah.gone") == 0


async def test_a_job_that_always_kills_its_node_ends_after_its_attempts(app, note, conn, store_for):
    store = store_for(1)
    made = await note.enqueue()
    for attempt in (1, 2, 3):
        [claimed] = await store.claim(1, {})
        assert claimed.attempt == attempt
        await expire(conn)
        await store.reset()

    row = await job(conn, made.id)
    assert (row["state"], row["attempt"], row["resets"]) == ("failed", 3, 3)
    assert "lease expired" in row["error"]
    assert await store.claim(1, {}) == []


async def test_a_release_charges_no_attempt_and_keeps_the_place(app, note, conn, store_for):
    store = store_for(1)
    first, second = [(await note.enqueue(n)).id for n in range(2)]
    [claimed] = await store.claim(1, {})
    assert claimed.id == first

    assert await store.release([claimed.token]) == 1
    store.forget()
    again = await store.claim(2, {})
    assert [(each.id, each.attempt) for each in again] == [(first, 1), (second, 1)]


async def test_a_replayed_ack_is_accepted_once_and_changes_nothing(app, note, conn, store_for):
    store = store_for(1)
    await app.enqueue_many(note.job(n) for n in range(3))
    jobs = await store.claim(3, {})
    acks = [done(each) for each in jobs]

    assert len(await store.ack(acks, [])) == 3
    assert len(await store.ack(acks, [jobs[0].token])) == 3, "the reply was lost, the outcome was not"
    assert await conn.fetchval("select count(*) from howdah.done") == 3
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_an_ack_of_several_leases_survives_the_loss_of_one(app, note, conn, store_for):
    store = store_for(1)
    await app.enqueue_many(note.job(n) for n in range(4))
    first, second = await store.claim(2, {}), await store.claim(2, {})
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 s' where token = $1", first[0].token)
    await store.reset()

    accepted = await store.ack([done(each) for each in first + second], [first[0].token, second[0].token])
    assert {ack.job.id for ack in accepted} == {each.id for each in second}
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_a_node_that_cannot_renew_stops_its_own_jobs(app, conn):
    cancelled = asyncio.Event()
    lost: list[str] = []
    unsubscribe = telemetry.subscribe(lambda name, facts: lost.append(facts["reason"]) if name == "job.lost" else None)

    @app.task
    async def long() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    made = await long.enqueue()
    async with node(app, lease=1.0, heartbeat=0.2, upkeep=False) as running_node:
        await eventually(lambda: _is(conn, made.id, "running"))
        running_node.renewals[0].statement = "select 1 / 0"  # every heartbeat fails from now on
        await asyncio.wait_for(cancelled.wait(), 30)
        await eventually(lambda: _true(lost))
        running_node.stop(now=True)
    unsubscribe()
    assert "renewed" in lost[0]


async def test_one_failed_heartbeat_cancels_nothing(app, conn):
    @app.task
    async def long() -> str:
        await asyncio.sleep(1.0)
        return "whole"

    made = await long.enqueue()
    async with node(app, lease=10.0, heartbeat=0.3) as running_node:
        await eventually(lambda: _is(conn, made.id, "running"))
        good, running_node.renewals[0].statement = running_node.renewals[0].statement, "select 1 / 0"
        await asyncio.sleep(0.5)
        running_node.renewals[0].statement = good
        row = await ended(conn, made.id)
    assert (row["state"], row["attempt"]) == ("done", 1)


async def _is(conn, id, wanted):
    return await state(conn, id) == wanted


async def _true(value):
    return value


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(app, conn):
    @app.task
    async def blocks() -> None:
        time.sleep(4.5)

    made = await blocks.enqueue()
    async with node(app, lease=2.5, heartbeat=0.2):
        row = await ended(conn, made.id)
    assert (row["state"], row["attempt"], row["resets"]) == ("done", 1, 0)


async def test_a_job_longer_than_any_lease_runs_once(app, conn):
    @app.task
    async def long() -> None:
        await asyncio.sleep(4.5)

    made = await long.enqueue()
    async with node(app, lease=2.5, heartbeat=0.2), node(app, lease=2.5, heartbeat=0.2):
        row = await ended(conn, made.id)
    assert (row["state"], row["attempt"], row["resets"]) == ("done", 1, 0)


async def test_a_heartbeat_renews_only_what_the_node_names(app, note, conn, store_for):
    """A claim whose reply was lost must expire."""
    from howdah.postgres import sql

    store = store_for(1)
    await app.enqueue_many(note.job(n) for n in range(2))
    [known] = await store.claim(1, {})
    [forgotten] = await store.claim(1, {})
    await conn.execute("update howdah.lease set expires_at = now() + interval '1 second'")
    statement = sql.load("howdah.node", schema="howdah")["heartbeat"]
    row = await conn.fetchrow(statement, 1, [known.token, 424242], 60.0, "busy", 1, False, 0)

    left = dict(await conn.fetch("select token, expires_at > now() + interval '30 seconds' from howdah.lease"))
    assert left == {known.token: True, forgotten.token: False}
    assert row["lost"] == [424242]


async def test_crashes_and_failures_are_counted_apart(app, note, conn, store_for):
    store = store_for(1)
    made = await note.enqueue()
    await store.claim(1, {})
    await expire(conn)
    await store.reset()
    [two] = await store.claim(1, {})
    await store.ack([done(two, Outcome.RETRY, error="E", message="m", delay=0.0)], [two.token])

    row = await job(conn, made.id)
    assert (row["state"], row["attempt"], row["resets"], row["error"]) == ("queued", 2, 1, "E: m")


async def test_reset_and_ack_refuse_a_frozen_snapshot(conn):
    import asyncpg

    async with conn.transaction(isolation="repeatable_read"):
        with pytest.raises(asyncpg.PostgresError, match="READ COMMITTED"):
            async with conn.transaction():
                await conn.execute("select howdah.reset()")


async def test_a_lease_is_reset_only_once_when_many_try(app, note, conn, store_for):
    store = store_for(1)
    await app.enqueue_many(note.job(n) for n in range(50))
    for _ in range(10):
        await store.claim(5, {})
    await expire(conn)

    sums = await asyncio.gather(*(store_for(n).reset() for n in range(2, 8)))
    assert sum(leases for leases, _, _ in sums) == 10
    assert sum(requeued for _, requeued, _ in sums) == 50
    assert await conn.fetchval("select sum(hi - lo) from howdah.ready") == 50


def test_a_lease_below_two_heartbeats_is_refused():
    with pytest.raises(ConfigError, match="at least two heartbeats"):
        WorkerOptions(lease=9, heartbeat=5)
