"""Dispatch: consumers hear of new events, by a wake-up or by a poll, and cost little while there are none."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from howdah import Howdah
from howdah.events.consumers import channel
from howdah.events.dispatcher import FLOWING, Dispatcher, PollInterval
from kit.node import POLL_ONLY, consumers_of, eventually, node

pytestmark = pytest.mark.anyio
notified = pytest.mark.skipif(
    POLL_ONLY or bool(os.environ.get("HOWDAH_TEST_PGBOUNCER")), reason="no notification arrives here"
)
LONG = 60.0
"""Longer than a test waits: what comes earlier did not come by this."""


@pytest.fixture
def got(app) -> list[int]:
    """The positions a consumer was given; it never looks by itself in time."""
    got: list[int] = []

    @app.consumer("notes", poll=LONG, max_poll=LONG)
    async def notes(event):
        got.append(event.position)

    return got


@pytest.fixture
def only_wake_ups(monkeypatch) -> None:
    """No look comes by itself in time, and the sleep marker is valid for long."""
    monkeypatch.setattr("howdah.events.dispatcher.RECONCILE", LONG)
    monkeypatch.setattr("howdah.events.dispatcher.REQUEST_TTL", 600_000)


async def append(app: Howdah, count: int = 1) -> int:
    return (await app.log.append("Order-1", [{"type": "Noted"}] * count)).position


async def has(got: list[int], position: int) -> bool:
    return position in got


async def asleep(running_node: Any) -> None:
    """Wait until the node has nothing to do, hears, and has stopped looking."""
    looks = -1
    while (
        consumers_of(running_node) is None
        or not consumers_of(running_node).runners
        or looks != consumers_of(running_node)._dispatcher.polls
    ):
        looks = consumers_of(running_node)._dispatcher.polls if consumers_of(running_node) else -1
        await asyncio.sleep(0.3)


# ---------------------------------------------------------------- the pace of one consumer


def test_the_pace_is_the_documented_one():
    pace = PollInterval(poll=1.0, max_poll=30.0, pause=0.2)
    assert [pace.nothing() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert pace.some(full=False) == 1, "events found: the base interval"
    assert [pace.nothing(), pace.nothing()] == [1, 2]
    assert pace.some(full=True) == 0.2, "a full batch: the next at once, after the pause"
    assert [pace.nothing(), pace.nothing(), pace.nothing()] == [1, 2, 4]
    pace.woken()
    assert pace.nothing() == 1, "a wake-up: the base interval again"


def test_the_longest_poll_is_never_below_the_base():
    pace = PollInterval(poll=5.0, max_poll=1.0, pause=0.0)
    assert [pace.nothing(), pace.nothing()] == [5, 5]


async def test_a_consumer_looks_by_itself_less_and_less_often(app):
    got: list[int] = []

    @app.consumer("alone", poll=0.05, max_poll=0.8)
    async def alone(event):
        got.append(event.position)

    async with node(app, notify=False, dispatch=LONG) as running_node:
        for _ in range(2):
            position = await append(app)
            await eventually(lambda position=position: has(got, position))  # the dispatcher sleeps: found by itself
            before, began = consumers_of(running_node)._dispatcher.polls, time.monotonic()
            await asyncio.sleep(1.6)
            await eventually(lambda before=before: _looked(consumers_of(running_node)._dispatcher, before + 2))
            looks, slow = consumers_of(running_node)._dispatcher.polls - before, (time.monotonic() - began) / 1.6
            assert looks <= 8 * slow, "32 if it did not slow down"


# ---------------------------------------------------------------- poll and notify


async def test_polling_finds_events_in_its_interval(app, got):
    async with node(app, notify=False, dispatch=0.2) as running_node:
        for _ in range(3):
            position = await append(app)
            await eventually(lambda position=position: has(got, position))
        before, began = consumers_of(running_node)._dispatcher.polls, time.monotonic()
        await asyncio.sleep(2)
        assert consumers_of(running_node)._dispatcher.polls - before <= 5.5 * (time.monotonic() - began)


@notified
@pytest.mark.usefixtures("only_wake_ups")
async def test_a_wake_up_is_enough(app, got):
    async with node(app, dispatch=LONG) as running_node:
        await asleep(running_node)
        for _ in range(5):
            position = await append(app)
            await eventually(lambda position=position: has(got, position))
        await asleep(running_node)
        position = await append(app)
        await eventually(lambda: has(got, position))


@notified
@pytest.mark.usefixtures("only_wake_ups")
async def test_a_wake_up_at_any_moment_is_not_lost(app, got):
    """Also between the look that found nothing and the sleep that follows it."""
    async with node(app, dispatch=LONG) as running_node:
        await asleep(running_node)
        for n in range(150):
            position = await append(app)
            await eventually(lambda position=position: has(got, position))
            await asyncio.sleep(n % 10 / 200)


async def test_news_between_a_read_and_a_wait_end_the_wait(app, database):
    dispatcher = Dispatcher(database, interval=LONG, listening=lambda: False)
    position = await append(app)
    assert await dispatcher.poll()
    assert await asyncio.wait_for(dispatcher.wait(position - 1, LONG), 30), "it came before the wait"

    waiting = asyncio.create_task(dispatcher.wait(position, LONG))
    await asyncio.sleep(0)
    await append(app)
    assert await dispatcher.poll()
    assert await asyncio.wait_for(waiting, 30), "it came during the wait"
    assert not await dispatcher.poll()
    stop = asyncio.Event()
    stop.set()
    assert not await asyncio.wait_for(dispatcher.wait(position + 1, LONG, stop), 30)
    await dispatcher._session.close()


@pytest.mark.usefixtures("only_wake_ups")
async def test_a_ring_during_a_look_leads_to_another_look(database):
    dispatcher = Dispatcher(database, interval=LONG, listening=lambda: True)
    stop = asyncio.Event()
    await dispatcher.poll()  # the first one begins the run of the server: that is news
    await asyncio.sleep(1.5 * FLOWING)  # and now nothing has moved for a while
    async with dispatcher._session.use():  # holds up the look
        running = asyncio.create_task(dispatcher.run(stop))
        await asyncio.sleep(0.1)
        dispatcher.wake()
    await eventually(lambda: _looked(dispatcher, 1 + 4))  # each of the two turns looks once more before it rests
    stop.set()
    await running


async def _looked(dispatcher: Dispatcher, times: int) -> bool:
    return dispatcher.polls >= times


@pytest.mark.usefixtures("only_wake_ups")
async def test_an_append_that_was_open_before_the_node_slept_is_found(app, got, direct):
    """It saw no sleep marker, so it does not notify."""
    other = await direct.connect("open append")
    transaction = other.transaction()
    await transaction.start()
    made = await app.log.append("Order-1", {"type": "Noted"}, conn=other)
    async with node(app, dispatch=LONG) as running_node:
        await eventually(lambda: _runs(running_node))
        await asyncio.sleep(0.5)
        await transaction.commit()
        await eventually(lambda: has(got, made.position))
    await other.close()


async def _runs(running_node: Any) -> bool:
    return bool(consumers_of(running_node) and consumers_of(running_node).runners)


async def test_a_listener_that_is_cut_again_and_again_is_replaced_by_polls(app, got, conn, monkeypatch):
    monkeypatch.setattr("howdah.events.dispatcher.RECONCILE", LONG)
    async with node(app, dispatch=0.1, notify=True) as running_node, _cutting(conn):
        await eventually(lambda: _troubled(running_node))
        for _ in range(3):
            position = await append(app)
            await eventually(lambda position=position: has(got, position))


async def _troubled(running_node: Any) -> bool:
    return bool(consumers_of(running_node) and consumers_of(running_node).wakeups_lost)


@asynccontextmanager
async def _cutting(conn: Any) -> AsyncIterator[None]:
    """Nobody can listen for long."""

    async def cut() -> None:
        while True:
            await conn.execute("""
                select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and (application_name = 'howdah listen' or query like 'LISTEN%')""")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(cut())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_broken_look_is_replaced(app, got, conn):
    async with node(app):
        for _ in range(3):
            position = await append(app)
            await eventually(lambda position=position: has(got, position))
            await conn.execute("""
                select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and application_name = 'howdah frontier'""")


# ---------------------------------------------------------------- what it costs


@notified
async def test_appends_ring_only_while_somebody_sleeps(app, got, database, direct, monkeypatch):
    monkeypatch.setattr("howdah.events.dispatcher.REQUEST_TTL", 1000)
    monkeypatch.setattr("howdah.events.dispatcher.RECONCILE", 0.4)
    rung: list[str] = []
    listener = await direct.connect("count")
    await listener.add_listener(
        channel(database.schema), lambda *facts: rung.append(facts[3]) if facts[3] == "" else None
    )
    await append(app)
    assert rung == [], "nobody sleeps yet"
    async with node(app) as running_node:
        await eventually(lambda: has(got, 1))
        await eventually(lambda: _hearing(running_node))
        await asyncio.sleep(0.5)
        assert rung == []
        await append(app)
        await eventually(lambda: _some(rung))

        busy = asyncio.create_task(_append_for_ever(app))
        try:
            await eventually(lambda: _quiet(rung, got), 30)
        finally:
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)
    await listener.close()


async def _some(rung: list[str]) -> bool:
    return bool(rung)


async def _append_for_ever(app: Howdah) -> None:
    async def appends(stream: str) -> None:
        while True:
            await app.log.append(stream, {"type": "Noted"})

    await asyncio.gather(*(appends(f"Order-{n}") for n in range(4)))


async def _quiet(rung: list[str], got: list[int]) -> bool:
    """Whether a hundred events came and nobody rang."""
    before, rings = len(got), len(rung)
    while len(got) < before + 100:
        await asyncio.sleep(0.01)
    return len(rung) == rings


@notified
async def test_an_idle_node_hardly_looks(app, got):
    for n in range(5):
        app.consumer(f"other {n}")(_nothing)
    async with node(app) as running_node:
        await eventually(lambda: _hearing(running_node))
        await asyncio.sleep(1)
        before, began = consumers_of(running_node)._dispatcher.polls, time.monotonic()
        await asyncio.sleep(3)
        assert consumers_of(running_node)._dispatcher.polls - before <= 25 * (time.monotonic() - began) / 3, (
            "two a second, and what consumers look by themselves"
        )


async def _nothing(event: Any) -> None: ...


async def _hearing(running_node: Any) -> bool:
    return bool(
        consumers_of(running_node) and consumers_of(running_node).runners and consumers_of(running_node)._listening()
    )
