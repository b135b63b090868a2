"""Actions of operators against claims, acks, resets, promotions, prunes and each other, stepwise and at once."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from kit.node import drain

pytestmark = pytest.mark.anyio
LAPSE = """
with held as materialized (select token from howdah.lease order by token for update)
update howdah.lease l set expires_at = now() - interval '1 s' from held where l.token = held.token
"""
"""Locked in the order everybody locks them in."""

NODE = 1
VERBS = {
    "delete": "howdah.delete($1)",
    "move": "howdah.move($1, 'other')",
    "reprioritize": "howdah.reprioritize($1, 9)",
}
DID = {"delete": "deleted", "move": "moved", "reprioritize": "reprioritized", "cancel": "cancelled"}


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
    yield store
    await store.close()
    pool.terminate()
    await app.close()


@pytest.fixture
async def ten(app, store):
    """Ten waiting jobs, in one run."""
    return [each.id for each in await app.enqueue_many(app.tasks["note"].job(n) for n in range(10))]


@pytest.fixture
def statements():
    return sql.load("howdah.jobs", schema="howdah")


async def waits(conn, other) -> None:
    """Until a connection waits for a lock."""
    pid = other.get_server_pid()
    for _ in range(500):
        if await conn.fetchval("select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nobody waits for a lock")


async def act(conn, verb: str, ids) -> dict[int, str]:
    return {row["id"]: row["result"] for row in await conn.fetch(f"select id, result from {VERBS[verb]}", ids)}


async def misplaced(conn) -> list[int]:
    """Jobs that are in two places or in none, and runs that overlap."""
    row = await conn.fetchrow(sql.load("howdah.maintenance", schema="howdah")["doctor_misplaced"], 100_000, 1, 1)
    assert row["overlapping"] == 0
    return list(row["wrong"])


def claim(conn, statements, wanted: int):
    return conn.fetch(statements["claim"], ["default"], [wanted], wanted, NODE, 30.0, ["note"], 8, "{}", 0)


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_an_act_waits_for_a_claim_and_takes_what_it_left(ten, statements, conn, other, direct, verb):
    claiming = other.transaction()
    await claiming.start()
    claimed = [row["id"] for row in await claim(other, statements, 4)]
    third = await direct.connect("third")
    acting = asyncio.create_task(act(third, verb, ten))
    await waits(conn, third)
    await claiming.commit()

    response = await acting
    assert claimed == ten[:4]
    assert response == dict.fromkeys(ten[:4], "running") | dict.fromkeys(ten[4:], DID[verb])
    assert await misplaced(conn) == []
    assert await conn.fetchval("select count(*) from howdah.job where queue <> 'default' or priority <> 0") == (
        0 if verb == "delete" else 6
    )
    third.terminate()


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_a_claim_passes_by_what_somebody_acts_on(ten, statements, conn, other, verb):
    acting = other.transaction()
    await acting.start()
    await act(other, verb, ten[3:5])

    meanwhile = await claim(conn, statements, 100)
    await acting.rollback()
    after = await claim(conn, statements, 100)

    assert meanwhile == [], "the run they were in is locked, and nobody waits"
    assert [row["id"] for row in after] == ten
    assert await misplaced(conn) == []


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_an_act_that_waited_for_a_cancel_leaves_the_cancelled_alone(ten, conn, other, direct, verb):
    cancelling = other.transaction()
    await cancelling.start()
    await other.fetch("select * from howdah.cancel($1)", [ten[4], ten[9]])
    third = await direct.connect("third")
    acting = asyncio.create_task(act(third, verb, ten[3:]))
    await waits(conn, third)
    await cancelling.commit()

    response = await acting
    ended = "deleted" if verb == "delete" else "over"
    assert response == dict.fromkeys(ten[3:], DID[verb]) | {ten[4]: ended, ten[9]: ended}
    assert await misplaced(conn) == []
    third.terminate()


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_a_cancel_that_waited_for_an_act_cancels_where_the_job_is_now(ten, conn, other, direct, verb):
    acting = other.transaction()
    await acting.start()
    await act(other, verb, ten[3:6])
    third = await direct.connect("third")
    cancelling = asyncio.create_task(third.fetch("select * from howdah.cancel($1)", [ten[4], ten[7]]))
    await waits(conn, third)
    await acting.commit()

    results = {row["id"]: row["result"] for row in await cancelling}
    assert results[ten[7]] == "cancelled"
    if verb != "delete":
        assert results[ten[4]] == "cancelled"
    assert await misplaced(conn) == []
    assert await conn.fetchval("select count(*) from howdah.ready where lo <= $1 and hi > $1", ten[4]) == 0
    third.terminate()


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_an_act_that_waited_for_a_promotion_finds_the_job_among_the_ready(
    app, store, statements, conn, other, direct, verb
):
    made = await app.tasks["note"].using(delay=1000).enqueue(1)
    await conn.execute("update howdah.later set due_at = now() - interval '1 second'")
    promoting = other.transaction()
    await promoting.start()
    await other.fetch(statements["promote"], ["default"], 10)
    third = await direct.connect("third")
    acting = asyncio.create_task(act(third, verb, [made.id]))
    await waits(conn, third)
    await promoting.commit()

    assert await acting == {made.id: DID[verb]}
    assert await misplaced(conn) == []
    third.terminate()


async def test_a_delete_that_waited_for_a_retry_leaves_the_job(ten, conn, other, direct):
    await conn.fetch("select * from howdah.cancel($1)", ten[:1])
    retrying = other.transaction()
    await retrying.start()
    await other.fetch("select * from howdah.retry($1)", ten[:1])
    third = await direct.connect("third")
    deleting = asyncio.create_task(act(third, "delete", ten[:1]))
    await waits(conn, third)
    await retrying.commit()

    assert await deleting == {ten[0]: "running"}
    assert await conn.fetchval("select state from howdah.jobs where id = $1", ten[0]) == "queued"
    third.terminate()


async def test_a_late_ack_of_a_deleted_job_writes_nothing(app, ten, store, conn):
    jobs = await store.claim(10, {})
    await store.ack([Ack(jobs[0], Outcome.FAILED, 1, error="E")], [])
    assert await act(conn, "delete", [jobs[0].id]) == {jobs[0].id: "deleted"}

    for outcome in (Outcome.FAILED, Outcome.RETRY, Outcome.RELEASED):
        assert await store.ack([Ack(jobs[0], outcome, 1, error="E")], []) == []
    assert await conn.fetchval("select count(*) from howdah.done") == 0
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")
    assert await store.reset() == (1, 9, 0), "it is not handed back either"


async def test_a_moved_job_that_a_dead_node_held_comes_back_to_its_new_queue(app, ten, store, statements, conn):
    await act(conn, "move", ten)
    rows = await conn.fetch(statements["claim"], ["other"], [10], 10, NODE, 30.0, ["note"], 8, "{}", 0)
    assert {row["id"] for row in rows} == set(ten)
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")

    assert await store.reset() == (1, 10, 0)
    assert await conn.fetchval("select array_agg(distinct queue) from howdah.ready") == ["other"]


async def test_an_act_on_what_is_pruned_meanwhile_says_so(app, ten, conn, other, direct):
    await conn.fetch("select * from howdah.cancel($1)", ten)
    pruning = other.transaction()
    await pruning.start()
    await other.fetchval("select howdah.prune_rows(now() + interval '1 day', now() + interval '1 day')")
    third = await direct.connect("third")
    deleting = asyncio.create_task(act(third, "delete", ten))
    await waits(conn, third)
    await pruning.commit()

    assert set((await deleting).values()) <= {"unknown", "running"}
    assert await act(conn, "delete", ten) == dict.fromkeys(ten, "unknown")
    third.terminate()


async def test_two_acts_that_meet_in_a_deadlock_are_both_done(app, store, ten, conn, other):
    """Ours is tried again when the server ends it."""
    later = [(await app.tasks["note"].using(delay=1000).enqueue(n)).id for n in range(2)]
    await conn.execute("set deadlock_timeout = '10s'")  # the other one is found first
    blocking = conn.transaction()
    await blocking.start()
    await conn.fetch("select from howdah.later where id = $1 for update", later[0])
    acting = asyncio.create_task(app.admin.move([*ten, *later], "other"))
    until = asyncio.get_running_loop().time() + 20
    while not await other.fetchval("select count(*) from pg_locks where not granted"):
        assert asyncio.get_running_loop().time() < until, "nobody waits"
        await asyncio.sleep(0.02)
    await conn.fetch("select from howdah.ready order by hi for update")
    await blocking.commit()

    assert {each.result for each in await acting} == {"moved"}
    assert await misplaced(conn) == []


async def until_heard(say):
    """As a worker does: what the server ended because of a deadlock is said again."""
    for _ in range(10):
        try:
            return await say()
        except asyncpg.DeadlockDetectedError:
            await asyncio.sleep(0.01)
    raise AssertionError("ten deadlocks in a row")


async def test_everything_at_once_loses_nothing(app, database, direct, conn):
    """People act at random while jobs are claimed, finished, failed, retried and taken back by resets."""
    ran: list[int] = []

    @app.task
    async def note(n: int) -> None: ...

    made = [each.id for each in await app.enqueue_many(note.job(n) for n in range(400))]
    made += [(await note.using(delay=0.01, key=f"k{n}").enqueue(n)).id for n in range(20)]
    deleted: set[int] = set()

    async def operators(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(40):
            some = dice.sample(made, 30)
            verb = dice.choice(["delete", "move", "reprioritize", "cancel", "retry"])
            values = {"move": [f"q{dice.randrange(3)}"], "reprioritize": [dice.randrange(-3, 4)]}.get(verb, [])
            if verb == "delete":
                some = some[:3]
            answers = await getattr(app.admin, verb)(some, *values)
            if verb == "delete":
                deleted.update(each.id for each in answers if each.result == "deleted")

    async def works(node: int) -> None:
        pool = await database.pool(2)
        store = JobStore(database, node, kinds=["note"], queues=None, lease=30, poll=0.1, notify=False, pool=pool)
        dice = random.Random(node)
        for _ in range(60):
            jobs = await store.claim(dice.choice([1, 5, 20]), {})
            acks = [
                Ack(
                    job,
                    dice.choice([Outcome.OK, Outcome.OK, Outcome.RETRY, Outcome.FAILED, Outcome.RELEASED]),
                    1,
                    error="E",
                )
                for job in jobs
                if dice.random() < 0.8
            ]
            accepted = await until_heard(lambda acks=acks: store.ack(acks, []))
            ran.extend(ack.job.id for ack in accepted)
            if dice.random() < 0.3:
                await until_heard(lambda: conn_for[node].execute(LAPSE))
                await until_heard(store.reset)
        await store.close()
        pool.terminate()

    conn_for = {node: await direct.connect("lapse") for node in (1, 2)}
    await asyncio.gather(operators(1), operators(2), operators(3), works(1), works(2))
    for each in conn_for.values():
        each.terminate()
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 s'")
    await conn.fetch("select * from howdah.reset(1000)")

    assert ran
    assert deleted
    assert await misplaced(conn) == []
    assert set(await conn.fetchval("select array_agg(id) from howdah.job")) == set(made) - deleted
    await conn.execute("update howdah.later set due_at = now()")
    await drain(app)
    left = await conn.fetchval(
        "select count(*) from howdah.job j where not exists (select from howdah.done d where d.id = j.id)"
    )
    assert left == await conn.fetchval("select count(*) from howdah.later"), "all that could run has run"
    assert (
        await conn.fetchval(
            "select count(*) from howdah.done d where not exists (select from howdah.job j where j.id = d.id)"
        )
        == 0
    )
    await app.close()
