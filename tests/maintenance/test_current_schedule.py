"""Which declaration of a schedule is the current one after an outage, a rollback, a freeze, or a clock change."""

from __future__ import annotations

import pytest

from howdah import Howdah, NewJob
from howdah.jobs.schedule import Schedule
from howdah.maintenance.scheduler import SEEN, Scheduler

pytestmark = pytest.mark.anyio

OLD, NEW = "0 0 1 1 *", "0 0 2 2 *"


@pytest.fixture
async def start(database):
    """Starts a process that has the schedule with an expression; it has declared once."""
    started = []

    async def start(cron):
        app = Howdah(database.dsn)
        schedule = Schedule(name="s", job=NewJob(kind="k"), cron=cron)
        scheduler = Scheduler(database, {"s": schedule}, app._clients.client())
        started.append((app, scheduler))
        await scheduler.declare()
        return scheduler

    yield start
    for app, scheduler in started:
        await scheduler.close()
        await app.close()


async def current(conn):
    return await conn.fetchval("select cron from howdah.schedule")


async def unseen(conn, *crons, by="1 minute"):
    """As if no node had repeated these declarations for so long."""
    await conn.execute(
        "update howdah.schedule_declaration set seen_at = seen_at - $1::text::interval where cron = any($2)", by, crons
    )


def cut_off(scheduler):
    """As if this process had last reached the server two minutes ago."""
    scheduler._declared_at -= 120


def patient(scheduler):
    """As if the process had been there, or back, for the time that a declaration counts."""
    scheduler._no_takeover_until -= SEEN.total_seconds()
    scheduler._no_older_takeover_until -= SEEN.total_seconds()


async def test_after_an_outage_the_node_that_returns_first_does_not_take_the_schedule(conn, start):
    """A release was under way. The slots that the new declaration missed would be lost."""
    old, new = await start(OLD), await start(NEW)
    slot = await conn.fetchval("select slot_at from howdah.schedule")
    await unseen(conn, OLD, NEW, by="2 minutes")
    cut_off(old)
    cut_off(new)

    await old.declare()
    assert await current(conn) == NEW
    await new.declare()
    await old.declare()
    patient(old)
    await old.declare()
    assert await current(conn) == NEW
    assert await conn.fetchval("select slot_at from howdah.schedule") == slot


async def test_an_old_node_that_starts_right_after_an_outage_does_not_take_the_schedule(conn, start):
    await start(OLD)
    new = await start(NEW)
    slot = await conn.fetchval("select slot_at from howdah.schedule")
    await unseen(conn, OLD, NEW, by="2 minutes")
    cut_off(new)

    old = await start(OLD)
    assert await current(conn) == NEW
    await new.declare()
    patient(old)
    await old.declare()
    assert await current(conn) == NEW
    assert await conn.fetchval("select slot_at from howdah.schedule") == slot

    await unseen(conn, NEW)
    await old.declare()
    assert await current(conn) == OLD, "the control: the nodes of the new release are gone"


async def test_when_the_other_nodes_do_not_return_after_an_outage_the_old_ones_fire(conn, start):
    """The control: it waits, and no longer than that."""
    old, _new = await start(OLD), await start(NEW)
    await unseen(conn, OLD, NEW, by="2 minutes")
    cut_off(old)
    await old.declare()
    patient(old)
    await old.declare()
    assert await current(conn) == OLD


async def test_a_process_that_was_frozen_for_hours_is_no_new_release(conn, start):
    old, other, new = await start(OLD), await start(OLD), await start(NEW)
    await unseen(conn, OLD, by="2 hours")
    await new.declare()
    assert await conn.fetchval("select count(*) from howdah.schedule_declaration") == 1, "the old one is forgotten"

    for each in (old, other):
        cut_off(each)
        await each.declare()
        patient(each)
        await each.declare()
    assert await current(conn) == NEW

    await unseen(conn, OLD, by="2 hours")
    await new.declare()
    await start(OLD)
    assert await current(conn) == OLD, "the control: a process that starts after an hour is one"


async def test_a_frozen_node_of_a_release_that_was_rolled_back_takes_nothing_when_it_wakes_up(conn, start):
    old, new = await start(OLD), await start(NEW)
    await unseen(conn, NEW)
    patient(old)
    await old.declare()
    assert await current(conn) == OLD

    cut_off(new)
    await new.declare()
    patient(new)
    await new.declare()
    await old.declare()
    assert await current(conn) == OLD

    again = await start(NEW)
    assert await current(conn) == NEW, "a process that starts with it is a release"
    await old.declare()
    await again.declare()
    assert await current(conn) == NEW


async def test_a_frozen_node_alone_fires_again(conn, start):
    old, new = await start(OLD), await start(NEW)
    await unseen(conn, NEW)
    patient(old)
    await old.declare()
    await unseen(conn, OLD)
    cut_off(new)
    await new.declare()
    patient(new)
    await new.declare()
    assert await current(conn) == NEW


@pytest.mark.parametrize("by", ["0 hours", "-1 hour"], ids=["the control", "an hour back"])
async def test_a_new_declaration_is_the_newest_although_the_clock_of_the_server_went_back(conn, start, by):
    old = await start(OLD)
    await conn.execute(
        "update howdah.schedule_declaration set seen_at = seen_at - $1::text::interval,"
        " declared_at = declared_at - $1::text::interval",
        by,
    )
    await start(NEW)
    await old.declare()
    assert await current(conn) == NEW


async def test_a_declaration_seen_in_the_future_is_not_in_force_for_that_long(conn, start):
    """The clock went back by an hour, and the nodes of the release that was rolled back had been seen before."""
    old, _new = await start(OLD), await start(NEW)
    await unseen(conn, OLD, NEW, by="-1 hour")
    patient(old)
    await old.declare()
    assert await current(conn) == OLD
