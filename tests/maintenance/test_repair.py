"""A job in no place is found and queued again."""

from __future__ import annotations

import pytest

from howdah import maintenance, telemetry
from howdah.maintenance import Repair
from howdah.postgres.database import Session
from kit.interleave_jobs import lay
from kit.job_invariants import wrongs
from kit.node import drain

pytestmark = pytest.mark.anyio


@pytest.fixture
async def repair(database, monkeypatch):
    monkeypatch.setattr(maintenance, "REPAIR_INTERVAL", 0.0)
    session = Session(database, "upkeep")
    yield Repair(database, session)
    await session.close()


@pytest.fixture
def heard():
    events = []
    unsubscribe = telemetry.subscribe(lambda name, facts: events.append(facts) if name == "job.repair" else None)
    yield events
    unsubscribe()


@pytest.fixture
def note(app):
    @app.task
    async def note(n: int) -> None: ...

    return note


async def test_a_job_in_no_place_runs_again_and_is_charged_a_crash(app, note, conn, repair, heard, caplog):
    await app.enqueue_many(note.job(n) for n in range(10))
    lost = await note.enqueue(10)
    await conn.execute("delete from howdah.ready where lo = $1", lost.id)
    assert await wrongs(conn) == [f"job {lost.id} is in no place"]

    await repair.run()
    assert await wrongs(conn) == []
    assert [(facts["requeued"], facts["ended"], facts["leases"]) for facts in heard] == [(1, 0, 0)]
    assert "in no place" in caplog.text
    row = await conn.fetchrow("select state, attempt, resets, error from howdah.jobs where id = $1", lost.id)
    assert (row["state"], row["attempt"], row["resets"]) == ("queued", 1, 1)
    assert row["error"].startswith("JobMisplaced")
    await drain(app)
    assert await conn.fetchval("select count(*) from howdah.done where state = 'd'") == 11


async def test_a_job_in_no_place_without_an_attempt_left_fails(app, conn, repair, heard):
    @app.task(max_attempts=1)
    async def once() -> None: ...

    made = await once.using(key="k").enqueue()
    await conn.execute("delete from howdah.ready")
    await repair.run()

    assert await wrongs(conn) == []
    row = await conn.fetchrow("select state, error from howdah.jobs where id = $1", made.id)
    assert row["state"] == "failed"
    assert row["error"].startswith("JobMisplaced")
    assert [facts["ended"] for facts in heard] == [1]


async def test_jobs_in_their_places_are_left_alone(conn, repair, heard):
    """One in every place: ready, later, leased, retried under a lease that lives, done, failed."""
    prepared = await lay(conn)
    before = await prepared.portrait(conn)
    await repair.run()

    assert await prepared.portrait(conn) == before
    assert heard == []


async def test_it_looks_at_all_of_them_part_by_part(app, note, conn, repair, heard, monkeypatch):
    monkeypatch.setattr(maintenance, "JOBS_AT_ONCE", 7)
    made = await app.enqueue_many(note.job(n) for n in range(50))
    await conn.execute("delete from howdah.ready")
    for _ in range(8):
        await repair.run()

    assert sum(facts["requeued"] for facts in heard) == len(made)
    assert await wrongs(conn) == []
    await repair.run()
    assert await conn.fetchval("select next_id from howdah.repair_state") == made[6].id + 1, "and begins anew"


async def test_a_lease_of_which_nothing_is_left_ends(conn, repair, heard):
    await lay(conn)
    await conn.execute(
        "insert into howdah.done (id, attempt, state) select i, 1, 'd' from howdah.lease l, unnest(los, his) r(lo, hi),"
        " generate_series(lo, hi - 1) i where not exists (select from howdah.gone g where g.id = i)"
        " on conflict do nothing"
    )
    await repair.run()
    assert await conn.fetchval("select count(*) from howdah.lease") == 1, "it is too young"
    await conn.execute("update howdah.lease set claimed_at = now() - interval '2 minutes'")
    await repair.run()
    assert await conn.fetchval("select count(*) from howdah.lease") == 1, "its last job has just ended"
    await conn.execute("update howdah.done set finished_at = now() - interval '2 minutes'")
    await repair.run()

    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    assert [facts["leases"] for facts in heard] == [1]


async def test_a_lease_whose_jobs_no_longer_exist_ends(conn, repair, heard):
    await lay(conn)
    await conn.execute("delete from howdah.later; delete from howdah.done; delete from howdah.ready")
    await conn.execute("delete from howdah.job_key; delete from howdah.job")
    await conn.execute("update howdah.lease set claimed_at = now() - interval '2 minutes'")
    await repair.run()

    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    assert [(facts["requeued"], facts["leases"]) for facts in heard] == [(0, 1)]


async def test_nothing_is_found_while_jobs_are_on_the_move(app, note, conn, repair, heard):
    import asyncio

    await app.enqueue_many(note.job(n) for n in range(5000))
    working = asyncio.create_task(drain(app))
    looks = 0
    while not working.done():
        await repair.run()
        looks += 1
    await working

    assert looks > 3
    assert heard == []
    assert await conn.fetchval("select count(*) from howdah.done where state = 'd'") == 5000
