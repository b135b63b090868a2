"""Only the database decides that a lease is over."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Transaction
from howdah.jobs.store import JobStore
from howdah.node.registry import Registration
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from kit.job_invariants import wrongs
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio

NODE = 1


@pytest.fixture
async def store(app, database):
    """The store of a node that only does what the test says, and six jobs that may be tried twice."""

    @app.task(max_attempts=2)
    async def note(n: int) -> None: ...

    pool = await database.pool(1)
    await app.enqueue_many(note.job(n) for n in range(6))
    store = JobStore(database, NODE, kinds=["note"], queues=None, lease=30, poll=1, notify=False, pool=pool)
    yield store
    await store.close()
    pool.terminate()


def ended(job, outcome=Outcome.OK):
    return Ack(job, outcome, 1, error=None if outcome is Outcome.OK else "E", delay=1000.0)


async def leases(conn) -> int:
    return int(await conn.fetchval("select count(*) from howdah.lease"))


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.FAILED, Outcome.RETRY, Outcome.RELEASED])
async def test_a_lease_called_finished_too_early_is_released_and_loses_nothing(store, conn, outcome):
    first, *others = await store.claim(3, {})
    assert len(await store.ack([ended(first, outcome)], [first.token])) == 1

    assert await wrongs(conn) == []
    assert await leases(conn) == 0
    again = await store.claim(6, {})
    assert {job.id for job in others} < {job.id for job in again}
    assert {job.attempt for job in again} == {1}, "nobody is charged"
    assert await store.ack([ended(job) for job in others], [first.token]) == [], "they are held under another lease"
    assert len(await store.ack([ended(job) for job in again], [again[0].token])) == len(again)
    assert await wrongs(conn) == []


async def test_a_lease_called_finished_without_an_outcome_is_released(store, conn):
    jobs = await store.claim(3, {})
    await store.ack([], [jobs[0].token])

    assert await wrongs(conn) == []
    assert len(await store.claim(6, {})) == 6


async def test_a_lease_ends_with_its_last_outcome_though_nobody_calls_it_finished(store, conn):
    jobs = await store.claim(6, {})
    await store.ack([ended(job) for job in jobs[:2]], [])
    await store.ack([ended(jobs[2], Outcome.RETRY), ended(jobs[3], Outcome.FAILED), ended(jobs[4])], [])
    assert await leases(conn) == 1
    await store.ack([ended(jobs[5])], [])

    assert await leases(conn) == 0
    assert await conn.fetchval("select count(*) from howdah.gone") == 0
    assert await wrongs(conn) == []


async def test_outcomes_reported_again_do_not_end_the_lease_of_the_others(store, conn):
    jobs = await store.claim(3, {})
    for _ in range(3):
        assert len(await store.ack([ended(jobs[0])], [])) == 1
        assert len(await store.ack([ended(jobs[1], Outcome.FAILED)], [])) == 1

    assert await leases(conn) == 1
    assert await conn.fetchval("select remaining from howdah.lease") == 1
    assert len(await store.ack([ended(jobs[2])], [])) == 1
    assert await leases(conn) == 0


async def test_an_outcome_said_twice_in_one_call_counts_once(store, conn):
    jobs = await store.claim(3, {})
    await store.ack([ended(jobs[0], Outcome.FAILED), ended(jobs[0], Outcome.FAILED)], [])

    assert await conn.fetchval("select remaining from howdah.lease") == 2
    assert await wrongs(conn) == []


async def test_the_lease_of_transactional_jobs_ends_too(app, conn):
    @app.task(transactional=True)
    async def book(n: int, *, tx: Transaction) -> None:
        await tx.execute("select 1")

    await app.enqueue_many(book.job(n) for n in range(30))
    await drain(app)
    assert await conn.fetchval("select count(*) from howdah.done where state = 'd'") == 30
    assert await leases(conn) == 0


# -------------------------------------------------------------------- a lease whose row is locked


async def beat(conn, *tokens: int) -> list[int]:
    statement = sql.load("howdah.node", schema="howdah")["heartbeat"]
    return list((await conn.fetchrow(statement, NODE, tokens, 60.0, "busy", 1, False, 0, timeout=5))["lost"])


@pytest.fixture
async def locked(store, conn, direct):
    """A lease that an open transaction holds and another one; the first has expired meanwhile. Also the transaction."""
    [one], [two] = await store.claim(1, {}), await store.claim(1, {})
    await conn.execute("insert into howdah.node (id, name) values ($1, 'here:1')", NODE)
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
    holder = await direct.connect("holder")
    held = holder.transaction()
    await held.start()
    await holder.execute("select from howdah.lease where token = $1 for update", one.token)
    yield one, two, held
    holder.terminate()


async def test_a_locked_lease_holds_up_no_heartbeat(locked, conn):
    one, two, _held = locked
    assert await beat(conn, one.token, two.token, 4711) == [4711]

    renewed = dict(await conn.fetch("select token, expires_at > now() from howdah.lease"))
    assert renewed == {one.token: False, two.token: True}


async def test_a_lease_that_was_locked_is_not_reset_before_its_node_can_renew_it(locked, store, conn):
    one, two, held = locked
    await beat(conn, one.token, two.token)
    await held.rollback()
    assert await store.reset() == (0, 0, 0)

    await beat(conn, one.token, two.token)
    assert await conn.fetchval("select locked from howdah.node") is None
    assert await conn.fetchval("select bool_and(expires_at > now()) from howdah.lease")


async def test_a_lease_that_was_locked_is_reset_when_its_node_died_meanwhile(locked, store, conn):
    one, two, held = locked
    await beat(conn, one.token, two.token)
    await held.rollback()
    await conn.execute("update howdah.node set locked_until = now() - interval '1 second'")

    assert await store.reset() == (1, 1, 0)


async def test_an_open_transaction_that_retries_a_job_costs_the_node_no_other_lease(app, conn, direct):
    go = asyncio.Event()

    @app.task(max_attempts=1)
    async def wait() -> None:
        await go.wait()

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise ValueError("on purpose")

    made = await app.enqueue_many([fail.job(), *(wait.job() for _ in range(5))])
    async with node(app) as working:
        failed = made[0].id
        await eventually(
            lambda: conn.fetchval("select count(*) = 1 from howdah.done where id = $1 and state = 'f'", failed)
        )
        holder = await direct.connect("holder")
        held = holder.transaction()
        await held.start()
        await holder.execute("select * from howdah.retry($1)", [failed])
        await asyncio.sleep(3)  # a lease lasts 2 s
        assert len([attempt for attempt in working.running if attempt.cancel_reason is None]) == 5
        await held.rollback()
        go.set()
        await eventually(lambda: conn.fetchval("select count(*) = 5 from howdah.done where state = 'd'"))
        holder.terminate()


# -------------------------------------------------------------------- a node whose row is gone


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_node_whose_row_is_gone_registers_again(app, conn, monkeypatch, guarded):
    """Unguarded, it works on, and is in no list."""

    async def leave_it(*_): ...

    if not guarded:
        monkeypatch.setattr(Registration, "insert_again", leave_it)

    @app.task
    async def note() -> None: ...

    async with node(app) as working:
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.node"))
        before = dict(await conn.fetchrow("select id, name, queues, kinds, slots from howdah.node"))
        await conn.execute("delete from howdah.node")

        if not guarded:
            await asyncio.sleep(1)  # four heartbeats
            assert await conn.fetchval("select count(*) from howdah.node") == 0
            return
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.node"))
        assert dict(await conn.fetchrow("select id, name, queues, kinds, slots from howdah.node")) == before
        assert before["id"] == working.node


async def test_ids_of_nodes_do_not_come_from_the_server(app, conn):
    @app.task
    async def note() -> None: ...

    ids = []
    for _ in range(2):
        async with node(app):
            await eventually(lambda: conn.fetchval("select count(*) > 0 from howdah.node"))
            ids.append(await conn.fetchval("select id from howdah.node"))
        await conn.execute("delete from howdah.node")
    assert ids[0] != ids[1]
    assert not await conn.fetchval("select is_called from howdah.node_id_seq")
