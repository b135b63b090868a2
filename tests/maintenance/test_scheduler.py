"""Schedules: only the current declaration fires, a bad schedule is alone, no slot is lost or doubled at the seams."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from howdah import Howdah, NewJob
from howdah.diagnose.doctor import Doctor
from howdah.jobs.schedule import Schedule
from howdah.maintenance.scheduler import Scheduler
from kit.node import eventually

pytestmark = pytest.mark.anyio

RARELY, OFTEN = "0 0 1 1 *", "* * * * * *"


@pytest.fixture
async def scheduler_for(database):
    made = []

    def make(cron=OFTEN, name="s", missed="once", zone="UTC", **job):
        app = Howdah(database.dsn)
        schedule = Schedule(name=name, job=NewJob(**{"kind": "new", **job}), cron=cron, missed=missed, zone=zone)
        scheduler = Scheduler(database, {name: schedule}, app._clients.client())
        made.append((app, scheduler))
        return scheduler

    yield make
    for app, scheduler in made:
        await scheduler.close()
        await app.close()


async def slots(conn, kind="new"):
    return [r[0] for r in await conn.fetch("select run_at from howdah.job where kind = $1 order by run_at, id", kind)]


async def vanish(conn, cron):
    """As if the nodes with this expression had stopped a minute ago."""
    await conn.execute(
        "update howdah.schedule_declaration set seen_at = seen_at - interval '1 minute' where cron = $1", cron
    )


async def again(scheduler):
    """A tick that also declares."""
    await scheduler.declare()
    await scheduler.tick()


# -------------------------------------------------------------------- declarations


async def test_the_expression_declared_last_is_fired_and_the_older_nodes_leave_it_alone(conn, scheduler_for, caplog):
    old, new = scheduler_for(RARELY, kind="old"), scheduler_for(OFTEN)
    await old.tick()
    await new.tick()

    async def fires():
        await again(old)
        await again(new)
        return len(await slots(conn)) >= 3

    await eventually(fires)
    assert (await conn.fetchrow("select kind, cron from howdah.schedule"))[1] == OFTEN
    assert await slots(conn, "old") == []
    [warning] = [each.getMessage() for each in caplog.records if "declared otherwise" in each.getMessage()]
    assert "schedule 's' is declared otherwise by other nodes (kind new, cron '* * * * * *', zone UTC)" in warning


async def test_an_older_node_that_starts_again_does_not_take_it_back(conn, scheduler_for):
    await scheduler_for(RARELY).tick()
    await scheduler_for(OFTEN).tick()
    await scheduler_for(RARELY).tick()

    assert await conn.fetchval("select cron from howdah.schedule") == OFTEN


async def test_when_the_nodes_of_the_current_declaration_are_gone_the_others_fire(conn, scheduler_for):
    """A release that was taken back."""
    old, new = scheduler_for(OFTEN, kind="old"), scheduler_for(RARELY)
    await old.tick()
    await new.tick()
    before = len(await slots(conn, "old"))
    await vanish(conn, RARELY)

    async def fires():
        await again(old)
        return len(await slots(conn, "old")) >= before + 2

    await eventually(fires)
    assert await conn.fetchval("select cron from howdah.schedule") == OFTEN
    fired = await slots(conn, "old")
    assert len(set(fired)) == len(fired)


@pytest.mark.parametrize("change", [{"payload": b'{"n": 2}'}, {"queue": "other"}, {"kind": "another"}, {"priority": 5}])
async def test_two_apps_with_one_name_are_told_and_slots_are_not_shared(conn, database, scheduler_for, caplog, change):
    one, other = scheduler_for("*/10 * * * *"), scheduler_for("*/10 * * * *", **change)
    await one.tick()
    await other.tick()
    await one.declare()

    assert "schedule 's' is declared otherwise" in caplog.text
    found = [each for each in await Doctor(database).examine() if each.name == "schedules"]
    assert [each.verdict for each in found] == ["warn"]
    assert found[0].fact.startswith("'s' is declared in 2 ways: ")


async def test_the_same_declaration_on_many_nodes_alarms_nobody(conn, database, scheduler_for, caplog):
    """The control: nothing to see."""
    for scheduler in [scheduler_for("*/10 * * * *") for _ in range(3)]:
        await again(scheduler)

    assert "declared otherwise" not in caplog.text
    assert [each.verdict for each in await Doctor(database).examine() if each.name == "schedules"] == ["ok"]
    assert await conn.fetchval("select count(*) from howdah.schedule_declaration") == 1


async def test_declarations_no_node_has_any_more_are_forgotten(conn, scheduler_for):
    await scheduler_for(RARELY).tick()
    await conn.execute("update howdah.schedule_declaration set seen_at = now() - interval '2 hours'")
    await scheduler_for(OFTEN).tick()
    assert [row["cron"] for row in await conn.fetch("select cron from howdah.schedule_declaration")] == [OFTEN]


async def test_arguments_change_without_a_gap_or_a_double(conn, scheduler_for):
    """A roll-out while the schedule fires: the same slots go on where they are."""
    for n in range(4):
        scheduler = scheduler_for(OFTEN, payload=b'{"n": %d}' % n)
        seen = len(await slots(conn))

        async def fires(scheduler=scheduler, seen=seen):
            await again(scheduler)
            return len(await slots(conn)) >= seen + 2

        await eventually(fires)

    fired = await slots(conn)
    assert fired == [fired[0] + timedelta(seconds=n) for n in range(len(fired))]


async def test_an_expression_changed_just_before_a_common_slot_fires_it_once(conn, scheduler_for):
    first = scheduler_for("*/3 * * * * *")

    async def ahead():
        await first.tick()
        return await conn.fetchval("select last_at > clock_timestamp() from howdah.schedule")

    await eventually(ahead)
    await scheduler_for("*/1 * * * * *", kind="new").tick()
    fired = await slots(conn)
    assert len(fired) == len(set(fired))


# -------------------------------------------------------------------- seams


async def test_a_schedule_that_is_resumed_waits_for_its_next_slot(app, conn, scheduler_for):
    scheduler = scheduler_for("30 2 1 1 *", missed="all")
    await scheduler.tick()
    await app.admin.pause_schedule("s")
    await conn.execute("update howdah.schedule set slot_at = slot_at - interval '3 years'")
    await app.admin.pause_schedule("s", False)
    [row] = await app.admin.schedules()
    assert row.next_at > datetime.now(UTC) - timedelta(minutes=1)
    await scheduler.tick()

    assert await slots(conn) == []
    [row] = await app.admin.schedules()
    assert row.next_at > datetime.now(UTC)
    await app.close()


async def test_without_a_pause_the_same_slots_are_made_up_for(conn, scheduler_for):
    """The control."""
    scheduler = scheduler_for("30 2 1 1 *", missed="all")
    await scheduler.tick()
    await conn.execute("update howdah.schedule set slot_at = slot_at - interval '3 years'")
    await scheduler.tick()
    assert len(await slots(conn)) == 3


async def test_a_key_is_looked_at_when_the_slot_has_come(conn, scheduler_for):
    scheduler = scheduler_for(OFTEN, key="one at a time")

    async def fired():
        await scheduler.tick()
        return await slots(conn)

    [slot] = await eventually(fired)
    assert await conn.fetchval("select enqueued_at >= run_at from howdah.job where run_at = $1", slot)


async def test_a_run_that_ends_before_the_slot_does_not_cost_the_slot(conn, scheduler_for):
    scheduler = scheduler_for("0 0 1 1 *", key="held")
    await scheduler.tick()
    while True:
        await conn.fetch("select * from howdah.enqueue('before', key => 'held')")
        slot = await conn.fetchval(
            "update howdah.schedule set slot_at = clock_timestamp() + interval '1.9 seconds' returning slot_at"
        )
        await scheduler.tick()
        await conn.execute("delete from howdah.job_key")  # the run before has ended
        if await conn.fetchval("select clock_timestamp() < $1", slot):
            break

    async def fired():
        await scheduler.tick()
        return await slots(conn)

    assert await eventually(fired) == [slot]


async def test_ticks_that_come_late_lose_no_slot(conn, scheduler_for):
    scheduler = scheduler_for(OFTEN, missed="once")
    await scheduler.tick()
    began = await conn.fetchval("select slot_at from howdah.schedule")
    for seconds in (1, 3, 20):
        await conn.execute("update howdah.schedule set slot_at = slot_at - $1::interval", timedelta(seconds=seconds))
        await conn.execute("delete from howdah.job")
        was = await conn.fetchval("select slot_at from howdah.schedule")
        await scheduler.tick()
        fired = await slots(conn)
        assert len(fired) >= seconds
        assert fired == [was + timedelta(seconds=n) for n in range(len(fired))]
    assert began


@pytest.mark.parametrize(("missed", "least", "most"), [("once", 1, 2), ("skip", 1, 2)])
async def test_more_than_a_hundred_missed_slots(conn, scheduler_for, missed, least, most):
    scheduler = scheduler_for("* * * * *", missed=missed)
    second = float(await conn.fetchval("select extract(second from clock_timestamp())"))
    if second > 40:
        await asyncio.sleep(63 - second)  # no slot comes due between the two ticks
    await scheduler.tick()
    await conn.execute("update howdah.schedule set slot_at = slot_at - interval '7 hours'")
    await scheduler.tick()

    fired = await slots(conn)
    assert least <= len(fired) <= most
    assert fired[-1] > datetime.now(UTC) - timedelta(seconds=70), "the one due now is among them"


# -------------------------------------------------------------------- a bad one


async def test_a_schedule_the_database_refuses_is_alone(conn, database, app, caplog):
    good = {f"good {n}": Schedule(name=f"good {n}", job=NewJob(kind="new"), cron=OFTEN) for n in (1, 2)}
    bad = Schedule(name="bad", job=NewJob(kind="refused"), cron=OFTEN)
    scheduler = Scheduler(database, {"bad": bad, **good}, app._clients.client())
    await conn.execute("alter table howdah.job add constraint refused check (kind <> 'refused')")

    async def fires():
        await scheduler.tick()
        return len(await slots(conn)) >= 6

    await eventually(fires)
    fired = await slots(conn)
    assert {fired.count(each) for each in fired[:-2]} == {2}
    messages = [each.getMessage() for each in caplog.records if "'bad'" in each.getMessage()]
    assert len(messages) == 1
    assert "could not enqueue its job" in messages[0]
    found = [each for each in await Doctor(database).examine() if each.name == "schedules"]
    assert [each.verdict for each in found] == ["bad"]
    assert "'bad' could not enqueue its job" in found[0].fact
    assert {row.name: row.error is None for row in await app.admin.schedules()} == {
        "bad": False,
        "good 1": True,
        "good 2": True,
    }

    await conn.execute("alter table howdah.job drop constraint refused")
    await eventually(lambda: _mended(conn, scheduler))
    assert [each.verdict for each in await Doctor(database).examine() if each.name == "schedules"] == ["ok"]
    await scheduler.close()
    await app.close()


async def _mended(conn, scheduler):
    await scheduler.tick()
    return await slots(conn, "refused") and not await conn.fetchval(
        "select bool_or(error is not null) from howdah.schedule"
    )


async def test_a_key_that_an_open_transaction_holds_does_not_stop_the_others(conn, direct, database, app, caplog):
    keyed = Schedule(name="a", job=NewJob(kind="keyed", key="held"), cron=OFTEN)
    plain = Schedule(name="b", job=NewJob(kind="new"), cron=OFTEN)
    scheduler = Scheduler(database, {"a": keyed, "b": plain}, app._clients.client())
    holder = await direct.connect("holder")
    transaction = holder.transaction()
    await transaction.start()
    await holder.fetch("select howdah.enqueue('other', key => 'held')")

    async def fires():
        await scheduler.tick()
        return len(await slots(conn)) >= 4 and "holds its key" in caplog.text

    await eventually(fires)
    await transaction.rollback()
    await holder.close()
    await scheduler.close()
    await app.close()
