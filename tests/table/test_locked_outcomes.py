"""Outcomes and logs of rows that a transaction of the user has locked: recorded later, without holding up others."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import Transaction
from howdah.outcome import Ack, Outcome
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

GRACE = 1.0
LOCK = "update uploads set size_mb = 1 where n = 3"


@pytest.fixture
async def locked(direct):
    """Lock row 3 until told otherwise, as an open transaction of the user's does."""
    other = await direct.connect("user")
    transaction = None

    class Locked:
        async def begin(self, statement=LOCK):
            nonlocal transaction
            transaction = other.transaction()
            await transaction.start()
            await other.execute(statement)

        async def end(self):
            await transaction.commit()

    yield Locked()
    other.terminate()


def counted(conn, condition, rows):
    async def check():
        return await conn.fetchval(f"select count(*) from uploads where {condition}") == rows

    return check


def done(jobs, outcome=Outcome.OK):
    return [Ack(job, outcome, 5, delay=60.0) for job in jobs]


def left(acks):
    """The rows to be reported again."""
    return [ack.job.id for ack in acks if ack.postponed]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.RETRY, Outcome.RELEASED, Outcome.FAILED])
async def test_the_neighbours_of_a_locked_row_are_recorded(app, uploads, rows, store_for, locked, outcome):
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    await locked.begin()
    acks = done(jobs, outcome)
    accepted = await asyncio.wait_for(store.ack(acks, [jobs[0].token]), 20)

    assert sorted(ack.job.id for ack in accepted) == [1, 2, 4, 5]
    assert left(acks) == [3]
    assert [key[1] for key in store.held([jobs[0].token])] == [3], "heartbeats go on for this row alone"
    await locked.end()
    again = [ack for ack in acks if ack.postponed]
    assert await store.ack(again, [jobs[0].token]) == again
    assert left(acks) == []
    assert len(set(await rows.states())) == 1
    assert store.held([jobs[0].token]) == []


async def test_a_locked_row_that_is_no_longer_ours_is_not_reported_again(app, uploads, rows, store_for, locked):
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    await uploads.execute("update uploads set state = 'queued', lease_token = null where n = 3")
    await locked.begin()
    acks = done(jobs)

    assert len(await store.ack(acks, [jobs[0].token])) == 4
    assert left(acks) == []


async def test_an_outcome_that_is_recorded_already_is_known_though_its_row_is_locked(
    app, uploads, rows, store_for, locked
):
    """As when the answer was lost."""
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    await store.ack(done(jobs), [])
    await locked.begin()
    again, other = done(jobs), done(jobs, Outcome.RETRY)

    assert len(await store.ack(again, [])) == 5
    assert left(again) == []
    assert await store.ack(other, []) == []
    assert left(other) == []


async def test_a_deleted_row_is_not_reported_again_for_ever(app, uploads, rows, store_for, locked):
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    await locked.begin("delete from uploads where n = 3")
    acks = done(jobs)
    await store.ack(acks, [jobs[0].token])
    assert left(acks) == [3]
    await locked.end()

    assert await store.ack([ack for ack in acks if ack.postponed], []) == []
    assert left(acks) == []


async def test_a_refused_outcome_whose_row_is_locked_meanwhile_is_reported_again(app, uploads, rows, store_for, locked):
    await uploads.execute("alter table uploads add check (state <> 'completed' or n <> 3)")
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    fetch = store._acks.fetch

    async def lock_before_it_fails(statement, *args, **more):
        if statement == store._plan.sql["fail"]:
            store._acks.fetch = fetch
            await locked.begin()
        return await fetch(statement, *args, **more)

    store._acks.fetch = lock_before_it_fails
    acks = done(jobs)
    assert len(await store.ack(acks, [])) == 4
    assert left(acks) == [3]
    await locked.end()
    [failed] = await store.ack([ack for ack in acks if ack.postponed], [])
    assert failed.outcome is Outcome.FAILED
    assert (await rows.one(3))["state"] == "failed"


async def test_a_node_records_the_neighbours_at_once_and_the_locked_row_when_it_is_free(app, uploads, rows, locked):
    """Though the lock lasts longer than a lease and the stall time; nothing runs twice, nothing is charged."""
    table = app.table("uploads", poll=0.1, stalled_after=2.0, heartbeat=0.3)
    begun, go = [], asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        begun.append(record["n"])
        await go.wait()

    async def all_begun():
        return len(begun) == 5

    await rows.add(5)
    async with node(app, slots=10, grace=GRACE), node(app, slots=10, grace=GRACE):
        await eventually(all_begun)
        await locked.begin()
        go.set()
        await eventually(counted(uploads, "state = 'completed'", 4))
        await rows.add(4)  # later rows are claimed and recorded, too
        await eventually(counted(uploads, "state = 'completed'", 8))
        await asyncio.sleep(5)
        assert await counted(uploads, "state = 'processing'", 1)()
        await locked.end()
        await eventually(counted(uploads, "state = 'completed'", 9))
    assert sorted(begun) == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert await counted(uploads, "num_resets + num_failures > 0", 0)()


async def test_a_stop_does_not_wait_for_a_locked_row(app, uploads, rows, locked):
    table = app.table("uploads", poll=0.1, stalled_after=2.0, heartbeat=0.3)
    begun, go = [], asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        begun.append(record["n"])
        await go.wait()

    async def all_begun():
        return len(begun) == 5

    await rows.add(5)
    async with node(app, slots=10, grace=GRACE):
        await eventually(all_begun)
        await locked.begin()
        go.set()
        await eventually(counted(uploads, "state = 'completed'", 4))
        began = time.monotonic()
    assert time.monotonic() - began < 20, "it ended while the row was locked"
    assert (await rows.one(3))["state"] == "processing"
    await locked.end()
    async with node(app, slots=10, grace=GRACE):
        await eventually(counted(uploads, "state = 'completed'", 5))
    assert sorted(begun) == [1, 2, 3, 3, 4, 5]
    assert (await rows.one(3))["num_failures"] == 0


async def test_a_drain_ends_when_the_locked_row_is_recorded(app, uploads, rows, locked):
    table = app.table("uploads", poll=0.1)
    begun, go = [], asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        begun.append(record["n"])
        await go.wait()

    async def all_begun():
        return len(begun) == 5

    await rows.add(5)
    async with node(app, slots=10, drain=True, upkeep=False) as draining:
        await eventually(all_begun)
        await locked.begin()
        go.set()
        await eventually(counted(uploads, "state = 'completed'", 4))
        await rows.add(1)
        await eventually(counted(uploads, "state = 'completed'", 5))
        assert draining.ready, "it is not through"
        await locked.end()
        await eventually(counted(uploads, "state = 'completed'", 6))


# -------------------------------------------------------------------- logs


async def test_the_logs_of_a_locked_row_hold_up_no_other_and_are_written_later(app, uploads, rows, store_for, locked):
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    await locked.begin()
    keys = [((job.token, job.id), f'[{{"key": "{job.id}"}}]') for job in jobs]

    assert await asyncio.wait_for(store.log(keys), 20) == {(jobs[2].token, 3)}
    assert await counted(uploads, "cardinality(execution_logs) = 1", 4)()
    await locked.end()
    assert await store.log(keys) == set()
    assert await counted(uploads, "cardinality(execution_logs) = 1", 5)()


async def test_what_an_attempt_logged_last_is_written_before_its_outcome(app, uploads, rows, store_for, locked):
    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    for job in jobs:
        with store.execution_logs.open(job, "step", []) as entry:
            entry.write("last words")
    await locked.begin()
    acks = done(jobs)
    assert len(await store.ack(acks, [])) == 4
    assert left(acks) == [3]
    await locked.end()
    assert len(await store.ack([ack for ack in acks if ack.postponed], [])) == 1
    assert await counted(uploads, "execution_logs[1] ->> 'out' = 'last words' and state = 'completed'", 5)()


async def test_the_log_of_a_transactional_row_is_kept_though_the_row_was_locked(app, uploads, rows, locked):
    """Here the transaction of the handler waits, and no other row does."""
    table = app.table("uploads", poll=0.1, transactional=True)
    begun, go = [], asyncio.Event()

    @table.handler
    async def execute(record, tx: Transaction) -> None:
        begun.append(record["n"])
        async with table.log("step") as entry:
            entry.write("last words")
        await go.wait()

    async def all_begun():
        return len(begun) == 5

    await rows.add(5)
    async with node(app, slots=10):
        await eventually(all_begun)
        await locked.begin()
        go.set()
        await eventually(counted(uploads, "state = 'completed'", 4))
        await locked.end()
        await eventually(counted(uploads, "state = 'completed'", 5))
    assert await counted(uploads, "execution_logs[1] ->> 'out' = 'last words'", 5)()
    assert sorted(begun) == [1, 2, 3, 4, 5]
