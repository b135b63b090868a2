"""Stopping: running jobs finish, the rest goes back uncharged."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import Transaction
from kit.lock_waits import claims_held_up
from kit.node import eventually, job, node, quick, state

pytestmark = pytest.mark.anyio


async def running(conn, id):
    return await state(conn, id) == "running"


async def test_a_running_job_finishes_within_the_grace(app, conn):
    started = asyncio.Event()

    @app.task
    async def takes_a_while() -> str:
        started.set()
        await asyncio.sleep(3.0)
        return "whole"

    made = await takes_a_while.enqueue()
    async with node(app, grace=30.0, lease=2.0, heartbeat=0.2):
        await asyncio.wait_for(started.wait(), 30)
    row = await job(conn, made.id)
    assert (row["state"], row["result"]) == ("done", b'"whole"')
    assert await conn.fetchval("select state from howdah.node") == "offline"


async def test_what_is_not_done_after_the_grace_goes_back_uncharged(app, conn):
    @app.task
    async def for_ever() -> None:
        await asyncio.sleep(600)

    made = await for_ever.enqueue()
    began = time.monotonic()
    async with node(app, grace=0.5):
        await eventually(lambda: running(conn, made.id))
    row = await job(conn, made.id)
    assert (row["state"], row["attempt"]) == ("queued", 0)
    assert time.monotonic() - began < 60
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


@pytest.mark.parametrize("transactional", [False, True])
async def test_what_is_raised_after_the_cut_is_a_release(app, conn, transactional):
    """A library may turn the CancelledError of its caller into an error of its own."""

    async def cut() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            raise ConnectionError("the request was broken off") from None

    if transactional:

        @app.task(max_attempts=1, transactional=True)
        async def asks(tx: Transaction) -> None:
            await cut()
    else:

        @app.task(max_attempts=1)
        async def asks() -> None:
            await cut()

    made = await asks.enqueue()
    async with node(app, grace=0.2):
        await eventually(lambda: running(conn, made.id))

    row = await job(conn, made.id)
    assert (row["state"], row["attempt"]) == ("queued", 0)
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0


async def test_what_is_raised_after_a_cancel_is_the_cancel(app, conn):
    @app.task(max_attempts=3)
    async def asks() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            raise ConnectionError("the request was broken off")

    made = await asks.enqueue()
    async with node(app):
        await eventually(lambda: running(conn, made.id))
        await app.admin.cancel([made.id])
        await eventually(lambda: ended_as(conn, made.id, "cancelled"))


async def ended_as(conn, id, wanted):
    return await state(conn, id) == wanted


async def test_what_a_consumer_raises_after_the_cut_is_no_failure(app, conn):
    started = asyncio.Event()

    @app.consumer("Mail", max_failures=1)
    async def mail(event) -> None:
        started.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            raise ConnectionError("the request was broken off") from None

    await app.log.append("Order-1", {"type": "Placed"})
    running_node = app.node(quick())
    task = asyncio.create_task(running_node.run())
    await asyncio.wait_for(started.wait(), 30)
    running_node.stop(now=True)
    await asyncio.wait_for(task, 30)

    [consumer] = await app.log.admin.consumers()
    assert consumer.failures == 0


async def test_now_means_now(app, conn):
    @app.task
    async def for_ever() -> None:
        await asyncio.sleep(600)

    made = await app.enqueue_many(for_ever.job() for _ in range(10))
    running_node = app.node(quick(grace=60.0, slots=3))
    task = asyncio.create_task(running_node.run())
    await eventually(lambda: running(conn, made[0].id))
    began = time.monotonic()
    running_node.stop()
    await asyncio.sleep(0.2)
    running_node.stop(now=True)
    await asyncio.wait_for(task, 30)

    assert time.monotonic() - began < 30, "it waited for the grace of a minute"
    assert await conn.fetchval("select sum(hi - lo) from howdah.ready where attempt = 0") == 10


async def test_a_thread_that_does_not_end_cannot_hold_up_the_stop(app, conn):
    import threading

    release = threading.Event()

    @app.task
    def stubborn() -> None:
        release.wait(100)

    made = await stubborn.enqueue()
    began = time.monotonic()
    async with node(app, grace=0.3):
        await eventually(lambda: running(conn, made.id))
    assert time.monotonic() - began < 60
    assert await state(conn, made.id) == "queued"
    release.set()


async def test_a_stop_before_the_start_is_a_stop(app):
    @app.task
    async def note() -> None: ...

    running_node = app.node(quick())
    running_node.stop()
    await asyncio.wait_for(running_node.run(), 30)


async def test_a_claim_answered_after_the_stop_starts_nothing(app, conn, direct):
    began = []

    @app.task
    async def note() -> None:
        began.append(1)

    made = await note.enqueue()
    running_node = app.node(quick(lease=30.0, poll=0.1), upkeep=False)
    async with claims_held_up(direct) as one_waits:
        task = asyncio.create_task(running_node.run())
        await one_waits()
        running_node.stop()
    await asyncio.wait_for(task, 30)

    row = await job(conn, made.id)
    assert (began, row["state"], row["attempt"]) == ([], "queued", 0)
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_many_stops_at_any_moment_lose_nothing(app, conn):
    @app.task
    async def short(n: int) -> None:
        await asyncio.sleep(0.002)

    await app.enqueue_many(short.job(n) for n in range(2000))
    for round in range(20):
        running_node = app.node(quick(slots=5, grace=0.0 if round % 2 else 1.0), upkeep=False)
        task = asyncio.create_task(running_node.run())
        await asyncio.sleep(0.02 * (round % 7))
        running_node.stop(now=round % 3 == 0)
        await asyncio.wait_for(task, 30)
    await asyncio.wait_for(app.node(quick(drain=True), upkeep=False).run(), 90)

    rows = await conn.fetch("select state, attempt, count(*) from howdah.jobs group by 1, 2")
    assert [tuple(row) for row in rows] == [("done", 1, 2000)]
