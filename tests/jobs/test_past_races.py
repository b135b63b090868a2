"""Races that broke earlier versions of the engine, each step by step with connections of its own."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from howdah.jobs.ack import array
from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql

pytestmark = pytest.mark.anyio

NODE = 1


@pytest.fixture
async def other(direct):
    conn = await direct.connect("other")
    yield conn
    conn.terminate()


@pytest.fixture
async def store(app, database):
    @app.task
    async def note(n: int) -> None: ...

    pool = await database.pool(1)
    store = JobStore(database, NODE, kinds=["note"], queues=None, lease=30, poll=1, notify=False, pool=pool)
    await app.enqueue_many(note.job(n) for n in range(10))
    yield store
    await store.close()
    pool.terminate()


@pytest.fixture
def statements():
    return {**sql.load("howdah.jobs", schema="howdah"), **sql.load("howdah.node", schema="howdah")}


def ack_done(statements, jobs):
    """Statement and arguments of the hot ack."""
    tokens = Counter(job.token for job in jobs)
    ids, attempts = [job.id for job in jobs], [job.attempt for job in jobs]
    counts = list(tokens), list(tokens.values())
    return statements["ack_done"], NODE, *counts, *map(array, (ids, attempts, [1] * len(jobs))), [], [], []


async def waits(conn, pid):
    for _ in range(200):
        if await conn.fetchval("select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nobody waits for a lock")


async def test_the_last_ack_finds_its_lease_although_a_heartbeat_moved_it(store, statements, conn, other, direct):
    jobs = await store.claim(10, {})
    beat = other.transaction()
    await beat.start()
    await other.fetch(statements["heartbeat"], NODE, [jobs[0].token], 60.0, "busy", 1, False, 0)
    third = await direct.connect("third")
    pid = third.get_server_pid()
    acking = asyncio.create_task(third.fetch(*ack_done(statements, jobs)))
    await waits(conn, pid)
    await beat.commit()

    assert [row["token"] for row in await acking] == [jobs[0].token]
    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    assert await conn.fetchval("select count(*) from howdah.done") == 10
    third.terminate()


async def test_a_release_that_waited_for_an_ack_does_not_hand_back_what_it_finished(
    store, statements, conn, other, direct
):
    jobs = await store.claim(10, {})
    acking = other.transaction()
    await acking.start()
    await other.fetch(*ack_done(statements, jobs[:6]))
    third = await direct.connect("third")
    releasing = asyncio.create_task(third.fetchrow(statements["release"], NODE, [jobs[0].token]))
    await waits(conn, third.get_server_pid())
    await acking.commit()

    assert (await releasing)["requeued"] == 4
    assert await conn.fetchval("select sum(hi - lo) from howdah.ready") == 4
    assert await conn.fetchval("select count(*) from howdah.done") == 6
    third.terminate()


async def test_a_reset_leaves_a_lease_alone_while_an_ack_holds_it(store, statements, conn, other):
    jobs = await store.claim(10, {})
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
    acking = other.transaction()
    await acking.start()
    await other.fetch(*ack_done(statements, jobs))

    assert await store.reset() == (0, 0, 0)
    await acking.commit()
    assert await store.reset() == (0, 0, 0)
    assert await conn.fetchval("select count(*) from howdah.done") == 10


async def test_a_job_held_under_a_lost_and_a_fresh_lease_is_acked_by_the_fresh_one_alone(store, conn):
    old = await store.claim(10, {})
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
    assert await store.reset() == (1, 10, 0)
    new = await store.claim(10, {})
    assert {job.id for job in old} == {job.id for job in new}

    accepted = await store.ack([Ack(job, Outcome.OK, 1) for job in old + new], [old[0].token, new[0].token])
    assert {(ack.job.token, ack.job.id) for ack in accepted} == {(job.token, job.id) for job in new}
    late = [Ack(job, Outcome.RETRY, 1, error="E") for job in old]
    assert await store.ack(late, []) == []
    assert await conn.fetchval("select count(*) from howdah.done where attempt = 2") == 10
    assert await conn.fetchval("select count(*) from howdah.later") == 0


async def test_a_cancel_that_races_a_claim_is_carried_out_by_whoever_wins(store, conn, other):
    claiming = other.transaction()
    await claiming.start()
    statement = sql.load("howdah.jobs", schema="howdah")["claim"]
    rows = await other.fetch(statement, ["default"], [5], 5, NODE, 30.0, ["note"], 8, "{}", 0)
    asking = asyncio.create_task(conn.fetch("select * from howdah.cancel($1)", [rows[0]["id"], rows[-1]["id"] + 1]))
    await asyncio.sleep(0.2)
    await claiming.commit()

    assert [row["result"] for row in await asking] == ["asked", "cancelled"]


async def test_an_ack_in_a_transaction_waits_for_a_reset_and_then_refuses(store, conn, other):
    [job, *_] = await store.claim(10, {})
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
    resetting = other.transaction()
    await resetting.start()
    await other.fetch("select * from howdah.reset()")

    import asyncpg

    async def ack():
        await conn.execute(
            "select howdah.ack_in_transaction($1, $2, $3, $4, $5)", NODE, job.token, job.id, job.attempt, 1
        )

    acking = asyncio.create_task(ack())
    await asyncio.sleep(0.2)
    assert not acking.done()
    await resetting.commit()
    with pytest.raises(asyncpg.PostgresError, match="is lost"):
        await acking
