"""What a repaired job is charged, when it runs again, and which jobs repair leaves alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from prometheus_client import generate_latest

from howdah import Poison, maintenance, telemetry
from howdah.diagnose.doctor import Doctor
from howdah.maintenance import Repair
from howdah.observe.prometheus import Metrics
from howdah.postgres.database import Session
from kit.interleave import switch_off
from kit.job_invariants import wrongs
from kit.node import drain
from observe.scraping import samples, value

pytestmark = pytest.mark.anyio
RUN = "insert into howdah.ready (lo, hi, priority, attempt, queue, kind) values ($1, $2, 0, 0, 'default', 'note')"
RESULT = "select looked, requeued, ended, leases from howdah.repair_next(10000, 0)"


@pytest.fixture
def note(app):
    @app.task(max_attempts=2)
    async def note(n: int) -> None: ...

    return note


async def test_a_job_whose_time_has_not_come_waits_for_it_uncharged(app, conn):
    @app.task(max_attempts=1)
    async def once() -> None: ...

    due = datetime.now(UTC) + timedelta(days=1)
    made = await once.using(run_at=due).enqueue()
    await conn.execute("delete from howdah.later")
    assert (await conn.fetchrow(RESULT))["requeued"] == 1

    row = await conn.fetchrow("select state, attempt, resets, run_at from howdah.jobs where id = $1", made.id)
    assert tuple(row) == ("queued", 0, 0, due)
    assert await wrongs(conn) == []


async def test_a_person_who_retried_the_job_gave_it_all_its_attempts(app, conn):
    @app.task(max_attempts=1)
    async def once() -> None:
        raise Poison("on purpose")

    @app.task(max_attempts=2)
    async def twice() -> None:
        raise Poison("on purpose")

    made = [(await once.enqueue()).id, (await twice.enqueue()).id]
    await drain(app)
    await app.admin.retry(made)
    await conn.execute("delete from howdah.ready")
    assert tuple(await conn.fetchrow(RESULT))[1:] == (1, 1, 0)

    rows = await conn.fetch("select state, attempt from howdah.jobs order by id")
    assert [tuple(row) for row in rows] == [("failed", 1), ("queued", 1)]
    assert await wrongs(conn) == []


async def test_each_loss_is_charged_until_no_attempt_is_left(note, conn):
    await note.enqueue(1)
    states = []
    for _ in range(2):
        await conn.execute("delete from howdah.ready")
        await conn.fetchrow(RESULT)
        states.append(await conn.fetchval("select (state, attempt, resets)::text from howdah.jobs"))

    assert states == ["(queued,1,1)", "(failed,2,2)"]


async def test_a_lost_job_that_somebody_cancelled_is_cancelled(app, note, conn):
    made = await note.enqueue(1)
    await conn.execute("delete from howdah.ready")
    [cancelled] = await app.admin.cancel([made.id])
    assert cancelled.result == "asked"
    assert (await conn.fetchrow(RESULT))["requeued"] == 1
    await conn.fetchrow("select * from howdah.reset()")

    assert await conn.fetchval("select state from howdah.jobs") == "cancelled"


# -------------------------------------------------------------------- jobs in two places


@pytest.mark.parametrize("searched", [True, False], ids=["every run is searched", "only the probe by hi"])
async def test_runs_that_overlap_hide_no_job_from_repair(app, note, conn, searched):
    """Below the inner run the probe by ``hi`` meets the inner run, not the one that holds the job."""
    made = [each.id for each in await app.enqueue_many(note.job(n) for n in range(10))]
    await conn.execute(RUN, made[3], made[5])
    if not searched:
        await switch_off(conn, "repair", "where r.hi > b.low and r.lo <= b.high", "where false")
    found = tuple(await conn.fetchrow(RESULT))
    runs = [tuple(row) for row in await conn.fetch("select lo, hi from howdah.ready order by hi")]

    assert (found == (10, 0, 0, 0)) == searched
    assert (runs == [(made[3], made[5]), (made[0], made[9] + 1)]) == searched
    places = next(each for each in await Doctor(app.database).examine() if each.name == "places")
    assert places.verdict == "bad", "the doctor says so"


@pytest.mark.parametrize("second", ["later", "lease", "done"])
async def test_a_job_in_two_places_is_left_to_the_doctor(app, note, conn, second):
    [made] = [each.id for each in await app.enqueue_many([note.job(1)])]
    await conn.execute(
        {
            "later": "insert into howdah.later values ($1, now() + interval '1 hour', 0, 0, 'default', 'note')",
            "done": "insert into howdah.done (id, attempt, state) values ($1, 1, 'd')",
            "lease": "insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)"
            " select 1, now() + interval '1 hour', i, i + 1, '{1}', array[i], array[i + 1], '{1}'"
            " from (select $1::int8) x(i)",
        }[second],
        made,
    )
    assert len(await wrongs(conn)) == 1

    assert tuple(await conn.fetchrow(RESULT)) == (1, 0, 0, 0)
    assert len(await wrongs(conn)) == 1
    places = next(each for each in await Doctor(app.database).examine() if each.name == "places")
    assert (places.verdict, f": {made};" in places.fact) == ("bad", True)


# -------------------------------------------------------------------- all nodes together


async def test_nodes_share_one_position_and_one_pace(app, note, database, conn, monkeypatch):
    monkeypatch.setattr(maintenance, "JOBS_AT_ONCE", 4)
    monkeypatch.setattr(maintenance, "REPAIR_INTERVAL", 3600.0)
    made = [each.id for each in await app.enqueue_many(note.job(n) for n in range(10))]
    sessions = [Session(database, "upkeep") for _ in range(2)]
    one, other = (Repair(database, session) for session in sessions)
    position = "select next_id from howdah.repair_state"
    await one.run()
    await other.run()
    assert await conn.fetchval(position) == made[4], "the second one comes too early"
    await conn.execute("update howdah.repair_state set looked_at = now() - interval '2 hours'")
    await other.run()
    assert await conn.fetchval(position) == made[8], "it goes on where the other one was"
    await conn.execute("update howdah.repair_state set looked_at = now() + interval '2 hours'")
    await one.run()
    assert await conn.fetchval(position) == 0, "a clock that went back does not stop it"
    for session in sessions:
        await session.close()


async def test_one_look_at_a_time(note, conn, direct):
    await note.enqueue(1)
    other = await direct.connect("other")
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow(RESULT)
    assert (await conn.fetchrow(RESULT))["looked"] is None
    await transaction.rollback()
    assert (await conn.fetchrow(RESULT))["looked"] == 1
    other.terminate()


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
@pytest.mark.parametrize("function", ["repair(0)", "repair_next(10, 0)"])
async def test_an_old_snapshot_is_refused(conn, function, level):
    with pytest.raises(asyncpg.InvalidTransactionStateError, match="needs READ COMMITTED"):
        async with conn.transaction(isolation=level):
            await conn.fetchrow(f"select * from howdah.{function}")


async def test_open_enqueues_of_every_isolation_level_are_left_alone(app, note, conn, direct):
    """Their ids are below the position, and their rows come later."""
    others = []
    for level in ("read_committed", "repeatable_read", "serializable"):
        other = await direct.connect("other")
        transaction = other.transaction(isolation=level)
        await transaction.start()
        await app.enqueue_many((note.job(n) for n in range(5)), conn=other)
        await app.enqueue(note.job(0), conn=other)
        others.append((other, transaction))
    await app.enqueue_many(note.job(n) for n in range(5))
    assert tuple(await conn.fetchrow(RESULT)) == (5, 0, 0, 0)
    for other, transaction in others:
        looks = asyncio.create_task(conn.fetchrow(RESULT))
        await transaction.commit()
        assert tuple(await looks)[1:] == (0, 0, 0)
        other.terminate()

    assert tuple(await conn.fetchrow(RESULT)) == (23, 0, 0, 0)
    assert await wrongs(conn) == []


# -------------------------------------------------------------------- alarms


async def test_metrics_and_doctor_say_that_something_was_repaired(app, note, database, conn, monkeypatch):
    monkeypatch.setattr(maintenance, "REPAIR_INTERVAL", 0.0)
    await app.enqueue_many(note.job(n) for n in range(3))

    async def doctor():
        return next(each for each in await Doctor(app.database).examine() if each.name == "repair")

    assert (await doctor()).verdict == "ok"
    await conn.execute("delete from howdah.ready")
    metrics = Metrics()
    unsubscribe = telemetry.subscribe(metrics.on_event)
    session = Session(database, "upkeep")
    await Repair(database, session).run()
    await session.close()
    unsubscribe()
    scraped = samples(generate_latest(metrics).decode())
    assert (value(scraped, "jobs_repaired_total"), value(scraped, "leases_repaired_total")) == (3, 0)
    found = await doctor()
    assert found.verdict == "warn"
    assert found.fact.startswith("3 jobs in no place and 0 leases without jobs were repaired, the last ")
    await conn.execute("update howdah.repair_state set found_at = now() - interval '8 days'")
    assert (await doctor()).verdict == "ok"
