"""Recurring jobs: each slot once, on time, whatever happened meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from howdah import ConfigError, NewJob
from howdah.jobs.schedule import Schedule
from howdah.maintenance.scheduler import Scheduler
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

EVERY_SECOND = "* * * * * *"


def schedule(cron="*/10 * * * *", **options):
    return Schedule(name="s", job=NewJob(kind="tick"), cron=cron, **options)


@pytest.fixture
def tick(app):
    @app.task
    async def tick() -> None: ...

    return tick


@pytest.fixture
async def scheduler_for(app, database):
    made = []

    def make(**options):
        app.schedules.clear()
        app.schedule("s", app.tasks["tick"].job(), **options)
        scheduler = Scheduler(database, dict(app.schedules), app._clients.client())
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in made:
        await scheduler.close()
    await app.close()


async def slots(conn):
    return [row["run_at"] for row in await conn.fetch("select run_at from howdah.job order by run_at")]


async def set_back(conn, **interval):
    """As if no node had been up for a while."""
    await conn.execute("update howdah.schedule set slot_at = slot_at - $1::interval", timedelta(**interval))


@pytest.mark.stories  # a machine that is busy misses slots, which are then made up for by one job
async def test_a_schedule_fires_every_slot_once_with_three_nodes(app, tick, conn):
    app.schedule("seconds", tick.job(), cron=EVERY_SECOND)
    async with node(app), node(app), node(app):
        await eventually(lambda: _done(conn, 4))

    fired = await slots(conn)
    assert len(fired) == len(set(fired))
    assert [later - sooner for sooner, later in pairwise(fired)] == [timedelta(seconds=1)] * (len(fired) - 1)
    late = await conn.fetchval("select max(finished_at - run_at) from howdah.jobs where state = 'done'")
    early = await conn.fetchval("select min(finished_at - run_at) from howdah.jobs where state = 'done'")
    assert timedelta(0) <= early
    assert late < timedelta(seconds=2)
    row = await conn.fetchrow("select * from howdah.schedule")
    assert (row["name"], row["kind"], row["cron"], row["zone"]) == ("seconds", "tick", EVERY_SECOND, "UTC")
    assert row["last_job"] is not None


async def _done(conn, n):
    return await conn.fetchval("select count(*) from howdah.done") >= n


async def test_many_schedulers_at_once_fire_a_slot_once(app, tick, conn, scheduler_for):
    schedulers = [scheduler_for(cron="*/10 * * * *") for _ in range(6)]
    await schedulers[0].tick()
    await set_back(conn, minutes=10)
    await asyncio.gather(*(each.tick() for each in schedulers))

    assert len(await slots(conn)) == 1


@pytest.mark.parametrize(("missed", "times"), [("once", 1), ("all", 18), ("skip", 0)])
async def test_what_was_missed_is_made_up_for_as_said(app, tick, conn, scheduler_for, missed, times):
    scheduler = scheduler_for(cron="*/10 * * * *", missed=missed)
    await scheduler.tick()
    await set_back(conn, hours=3)
    await scheduler.tick()
    await scheduler.tick()

    fired = await slots(conn)
    assert abs(len(fired) - times) <= 1  # a slot may fall into this very moment
    assert len(set(fired)) == len(fired)
    assert await conn.fetchval("select slot_at > now() - interval '1 second' from howdah.schedule")


async def test_a_schedule_that_changes_starts_from_now(app, tick, conn, scheduler_for):
    await scheduler_for(cron="0 0 1 1 *").tick()
    first = await conn.fetchval("select slot_at from howdah.schedule")
    await scheduler_for(cron="*/5 * * * *").tick()
    second = await conn.fetchval("select slot_at from howdah.schedule")
    await scheduler_for(cron="*/5 * * * *").tick()

    assert first - datetime.now(UTC) > timedelta(hours=1) or first.month == 1
    assert second - datetime.now(UTC) <= timedelta(minutes=5)
    assert await conn.fetchval("select slot_at from howdah.schedule") >= second
    assert await conn.fetchval("select count(*) from howdah.schedule") == 1


async def test_a_paused_schedule_does_not_fire(app, tick, conn, scheduler_for):
    scheduler = scheduler_for(cron=EVERY_SECOND)
    await scheduler.tick()
    await conn.execute("update howdah.schedule set paused = true")
    before = len(await slots(conn))
    await set_back(conn, seconds=30)
    await scheduler.tick()
    assert len(await slots(conn)) == before


def test_clocks_that_change_are_followed():
    berlin = schedule("30 2 * * *", zone="Europe/Berlin")
    spring = berlin.after(datetime(2026, 3, 29, 0, 0, tzinfo=UTC))
    assert spring.astimezone(ZoneInfo("Europe/Berlin")).date().isoformat() == "2026-03-29"
    new_york = schedule("30 1 * * *", zone="America/New_York")
    first = new_york.after(datetime(2026, 11, 1, 4, 0, tzinfo=UTC))
    second = new_york.after(first)
    assert second - first > timedelta(hours=23), "a fixed time fires once on the day with two of them"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cron": "every day"}, "no cron expression"),
        ({"cron": "0 0 30 2 *"}, "no cron expression"),
        ({"zone": "Mars/Olympus"}, "no time zone"),
        ({"missed": "perhaps"}, "'once', 'all' or 'skip'"),
        ({"job": NewJob(kind="k", delay=3)}, "no run_at or delay"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        Schedule(**{"name": "s", "job": NewJob(kind="k"), "cron": "* * * * *", **options})


def test_two_schedules_cannot_share_a_name(app, tick):
    app.schedule("same", tick.job(), cron="* * * * *")
    with pytest.raises(ConfigError, match="two schedules are named 'same'"):
        app.schedule("same", tick.job(), cron="* * * * *")
