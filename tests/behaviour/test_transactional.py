"""Transactional tasks: writes, follow-ups and completion are one commit."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from howdah import Backoff, Snooze, Transaction, current_job, telemetry
from kit.node import drain, ended, eventually, job, node, state

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ledger(conn):
    await conn.execute("create table ledger (id bigint, note text)")

    async def rows():
        return [tuple(row) for row in await conn.fetch("select id, note from ledger order by 1, 2")]

    return rows


async def test_writes_follow_ups_and_completion_commit_together(app, conn, ledger):
    @app.task
    async def ship(order: int) -> None: ...

    @app.task(transactional=True)
    async def charge(tx: Transaction, order: int) -> int:
        await tx.execute("insert into ledger values ($1, 'charged')", order)
        await ship.using(conn=tx, queue="shipping").enqueue(order)
        await app.enqueue_many([ship.using(queue="shipping").job(order)], conn=tx)
        assert await conn.fetchval("select count(*) from howdah.jobs where kind = 'ship'") == 0
        return order

    made = await charge.enqueue(17)
    await drain(app, queues={"default": None})

    row = await job(conn, made.id)
    assert (row["state"], row["result"]) == ("done", b"17")
    assert await ledger() == [(17, "charged")]
    assert await conn.fetchval("select count(*) from howdah.jobs where kind = 'ship' and state = 'queued'") == 2
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


@pytest.mark.parametrize("result", [None, 17, "it's", "$q$ $qq", "\\' \\u0000 \\", "$q", {"ü": ["\U0001f418", "$$"]}])
async def test_completion_and_commit_are_one_round_trip(app, conn, result):
    sent = []

    @app.task(transactional=True)
    async def answer(tx: Transaction) -> object:
        tx.connection.add_query_logger(lambda record: sent.append(record.query))
        return result

    made = await answer.enqueue()
    await drain(app)

    row = await job(conn, made.id)
    assert (row["state"], json.loads(row["result"] or b"null")) == ("done", result)
    assert [text.startswith("select") and text.endswith("; commit") for text in sent] == [True]


async def test_a_failure_leaves_nothing_but_its_record(app, conn, ledger):
    @app.task
    async def ship(order: int) -> None: ...

    @app.task(transactional=True, max_attempts=2, retry=Backoff(first=0, jitter=0))
    async def charge(tx: Transaction, order: int) -> None:
        await tx.execute("insert into ledger values ($1, 'attempt ' || $2::text)", order, str(current_job().attempt))
        await ship.using(conn=tx, queue="shipping").enqueue(order)
        if current_job().attempt == 1:
            raise RuntimeError("card refused")

    made = await charge.enqueue(1)
    async with node(app, queues={"default": None}):
        assert (await ended(conn, made.id))["state"] == "done"

    assert await ledger() == [(1, "attempt 2")]
    assert await conn.fetchval("select count(*) from howdah.jobs where kind = 'ship'") == 1


async def test_a_snooze_rolls_back(app, conn, ledger):
    @app.task(transactional=True)
    async def hesitates(tx: Transaction) -> Snooze:
        await tx.execute("insert into ledger values (1, 'x')")
        return Snooze(100)

    made = await hesitates.enqueue()
    await drain(app)
    assert await ledger() == []
    assert await state(conn, made.id) == "queued"


async def test_a_lost_lease_rolls_everything_back(app, conn, ledger):
    lost: list[str] = []
    unsubscribe = telemetry.subscribe(lambda name, facts: lost.append(facts["reason"]) if name == "job.lost" else None)
    gate, inside = asyncio.Event(), asyncio.Event()

    @app.task(transactional=True)
    async def charge(tx: Transaction, order: int) -> None:
        await tx.execute("insert into ledger values ($1, 'charged')", order)
        inside.set()
        await gate.wait()

    made = await charge.enqueue(1)
    async with node(app, upkeep=False, heartbeat=60.0, lease=120.0):
        await asyncio.wait_for(inside.wait(), 30)
        await conn.execute("select howdah.pause('default')")  # or it would simply take the job again
        await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
        assert tuple(await conn.fetchrow("select * from howdah.reset()")) == (1, 1, 0)
        gate.set()
        await eventually(lambda: _told(lost))
    unsubscribe()

    assert await ledger() == []
    assert await state(conn, made.id) == "queued"


async def _told(lost):
    return lost


async def test_many_transactional_jobs_of_one_lease_each_commit(app, conn, ledger):
    @app.task(transactional=True)
    async def note(tx: Transaction, n: int) -> None:
        await tx.execute("insert into ledger values ($1, 'n')", n)

    await app.enqueue_many(note.job(n) for n in range(300))
    await drain(app)

    assert [id for id, _ in await ledger()] == list(range(300))
    assert await conn.fetchval("select count(*) from howdah.done where state = 'd'") == 300
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_a_handler_may_do_other_things_for_longer_than_its_lease(app, conn, ledger):
    @app.task(transactional=True, max_attempts=1)
    async def patient(tx: Transaction) -> None:
        await tx.execute("insert into ledger values (1, 'before')")
        await asyncio.sleep(4.5)
        await tx.execute("insert into ledger values (2, 'after')")

    made = await patient.enqueue()
    async with node(app, lease=2.5, heartbeat=0.2):
        row = await ended(conn, made.id)
    assert row["state"] == "done", row["error"]
    assert await ledger() == [(1, "before"), (2, "after")]


async def test_a_transaction_the_server_ended_is_named_so(app, conn):
    @app.task(transactional=True, max_attempts=1)
    async def freeze(tx: Transaction) -> None:
        await tx.execute("select 1")
        time.sleep(3)  # nothing else runs meanwhile, so nobody shows the server that we are there
        await tx.execute("select 1")

    made = await freeze.enqueue()
    async with node(app):
        row = await ended(conn, made.id)
    assert row["state"] == "failed"
    assert row["error"].startswith("TransactionLost: the server ended the transaction")


async def test_waiting_for_a_connection_does_not_count_as_running(app, conn):
    """A node has 20 connections for its transactions; here they are all taken for longer than a timeout."""
    gate = asyncio.Event()
    holding: list[int] = []

    @app.task(transactional=True)
    async def hold(tx: Transaction) -> None:
        holding.append(1)
        await gate.wait()

    @app.task(transactional=True, timeout=1.5, max_attempts=1)
    async def quick_one(tx: Transaction) -> None: ...

    @app.task(transactional=True, timeout=0.5, max_attempts=1)
    async def too_slow(tx: Transaction) -> None:
        await asyncio.sleep(60)

    held = await app.enqueue_many(hold.job() for _ in range(20))
    async with node(app, slots=50) as running_node:
        await eventually(lambda: _count(holding, 20))
        made = await app.enqueue_many(quick_one.job() for _ in range(5))
        slow = await too_slow.enqueue()
        await eventually(lambda: _count(running_node.running, 26))
        await asyncio.sleep(2.5)
        assert len(running_node.running) == 26
        gate.set()
        rows = [await ended(conn, each.id) for each in (*held, *made)]
        late = await ended(conn, slow.id)
    assert [row["state"] for row in rows] == ["done"] * 25
    # the negative control: once it has its connection, the clock runs
    assert late["error"].startswith("TimeoutError: the job ran longer than its timeout of 0.5 s")


async def _count(things, count):
    return len(things) == count
