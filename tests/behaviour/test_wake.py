"""Wake-ups: in milliseconds when they arrive, by the backstop when they do not."""

from __future__ import annotations

import asyncio
import os
import time

import asyncpg
import pytest

from kit.node import POLL_ONLY, ended, eventually, node

pytestmark = pytest.mark.anyio
notified = pytest.mark.skipif(
    POLL_ONLY or bool(os.environ.get("HOWDAH_TEST_PGBOUNCER")), reason="no notification arrives here"
)


@pytest.fixture
def stamp(app):
    times: dict[int, float] = {}

    @app.task
    async def stamp(n: int) -> None:
        times[n] = time.monotonic()

    stamp.times = times
    return stamp


async def asleep(running_node):
    """Wait until the node has fallen asleep."""
    await eventually(lambda: _asleep(running_node))
    await asyncio.sleep(0.2)


async def _asleep(running_node):
    return running_node.open and not running_node.open[0].store.deaf and running_node.open[0].store._wakeup._asleep


@notified
async def test_an_idle_node_is_woken_at_once(app, stamp, conn):
    async with node(app, poll=60.0) as running_node:
        await asleep(running_node)
        waits = []
        for n in range(10):
            began = time.monotonic()
            made = await stamp.enqueue(n)
            await ended(conn, made.id)
            waits.append(stamp.times[n] - began)
            await asyncio.sleep(0.1)
    # every one came long before the poll; at once, if only the machine is not busy all of the time
    assert min(waits) < 0.5, waits


@notified
async def test_a_first_job_of_a_new_queue_wakes_a_node_that_serves_all(app, stamp, conn):
    async with node(app, poll=60.0) as running_node:
        await asleep(running_node)
        made = await stamp.using(queue="brand new").enqueue(1)
        await ended(conn, made.id)


@notified
@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
async def test_a_transaction_that_was_open_when_the_node_fell_asleep_is_not_missed(
    app, stamp, database, conn, isolation
):
    own = await asyncpg.connect(database.dsn)
    transaction = own.transaction(isolation=isolation)
    await transaction.start()
    made = await stamp.using(conn=own).enqueue(1)  # looked for a sleeper, saw none
    async with node(app, poll=60.0) as running_node:
        await asleep(running_node)
        await asyncio.sleep(1.0)
        began = time.monotonic()
        await transaction.commit()
        await ended(conn, made.id)
        assert stamp.times[1] - began < 30, "only the poll found it"
    await own.close()


async def test_a_rolled_back_enqueue_wakes_nobody(app, stamp, direct, conn):
    heard: list[str] = []
    ear = await asyncpg.connect(direct.dsn, statement_cache_size=0)
    from howdah.jobs.wakeup import channel

    await conn.add_listener(channel("howdah"), lambda *args: heard.append(args[3]))
    await conn.fetch("select * from howdah.announce_sleep(null, 60000)")
    transaction = ear.transaction()
    await transaction.start()
    await stamp.using(conn=ear).enqueue(1)
    await transaction.rollback()
    async with ear.transaction():
        await stamp.using(conn=ear, queue="committed").enqueue(2)
    await eventually(lambda: _true(heard))
    await ear.close()

    assert heard == ["committed"]


async def _true(value):
    return value


async def test_nobody_is_notified_while_nobody_sleeps(app, stamp, conn):
    heard: list[str] = []
    from howdah.jobs.wakeup import channel

    await conn.add_listener(channel("howdah"), lambda *args: heard.append(args[3]))
    for n in range(5):
        await stamp.enqueue(n)
    await asyncio.sleep(0.3)
    assert heard == []


async def test_with_notifications_off_the_poll_finds_it(app, stamp, conn):
    async with node(app, poll=0.3, notify=False):
        await asyncio.sleep(0.6)
        began = time.monotonic()
        made = await stamp.enqueue(1)
        await ended(conn, made.id)
    assert stamp.times[1] - began < 4.5, "that is no poll of 0.3 s"


async def test_what_was_enqueued_before_the_node_started_runs_at_once(app, stamp, conn):
    made = await stamp.enqueue(1)
    async with node(app, poll=60.0, notify=False):
        await ended(conn, made.id)


async def test_a_scheduled_job_starts_on_time(app, stamp, conn):
    async with node(app, poll=60.0):
        await asyncio.sleep(0.5)
        began = time.monotonic()
        soon = await stamp.using(delay=0.5).enqueue(1)
        later = await stamp.using(delay=1.5).enqueue(2)
        await ended(conn, soon.id)
        await ended(conn, later.id)
    # not by the poll of a minute
    assert 0.45 < stamp.times[1] - began < 20
    assert 1.45 < stamp.times[2] - began < 20


@notified
async def test_a_killed_listen_connection_is_replaced_and_a_claim_follows(app, stamp, conn):
    async with node(app, poll=60.0) as running_node:
        await asleep(running_node)
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'howdah listen'"
        )
        made = await stamp.enqueue(1)
        await ended(conn, made.id)
        await asleep(running_node)
        again = await stamp.enqueue(2)
        await ended(conn, again.id)


@notified
async def test_every_connection_of_a_node_may_be_killed(app, stamp, conn):
    async with node(app, poll=1.0):
        for n in range(6):
            await conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'howdah %'"
                " and application_name <> 'howdah test' and datname = current_database()"
            )
            made = await eventually(lambda n=n: _enqueue(stamp, n))
            await ended(conn, made.id)


async def _enqueue(stamp, n):
    try:
        return await stamp.enqueue(n)
    except Exception:
        return None


@notified
async def test_a_long_transaction_elsewhere_costs_an_idle_node_little(app, stamp, database, conn):
    own = await asyncpg.connect(database.dsn)
    transaction = own.transaction()
    await transaction.start()
    await own.execute("create temp table elsewhere (x int)")  # it has an id, and may have enqueued for all we know
    async with node(app, poll=60.0) as running_node:
        await asleep(running_node)
        store, looks = running_node.open[0].store, 0
        claim = store.claim

        async def counted(*args):
            nonlocal looks
            looks += 1
            return await claim(*args)

        store.claim = counted
        began = time.monotonic()
        await asyncio.sleep(3.5)

        async def looked():
            return looks >= 2

        await eventually(looked)
        assert looks <= 9 * (time.monotonic() - began)
        made = await stamp.enqueue(1)
        await ended(conn, made.id)
    await transaction.rollback()
    await own.close()
