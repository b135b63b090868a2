"""With many partitions, statements lock only the partitions that hold their jobs, and find jobs in all of them."""

from __future__ import annotations

from typing import Any

import pytest

from howdah import Howdah, State
from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql

pytestmark = pytest.mark.anyio

NODE = 1
SIZE = 1000
FIRST = 4_000_000
"""The ids before it are in the first partitions, which are large; the next 500 in the default partition."""
LOCKED = """
select count(*)
from pg_locks l join pg_class c on c.oid = l.relation
where l.pid = pg_backend_pid() and c.relkind = 'r' and c.relname ~ '^(job|done)_([0-9]+_[0-9]+|default)$'
"""
STATEMENTS = sql.load("howdah.jobs", schema="howdah")


@pytest.fixture(params=[40, 5], ids=["many", "few"])
async def partitions(request: pytest.FixtureRequest, conn: Any) -> int:
    """How many partitions there are beside the first ones."""
    await conn.execute(f"select setval('howdah.job_id', {FIRST})")
    await conn.fetchval("select howdah.grow($1, $2)", request.param, SIZE)
    return int(request.param)


@pytest.fixture
def task(app: Howdah):
    @app.task
    async def note(n: int) -> None: ...

    return note


@pytest.fixture
async def store(database, task, partitions):
    pool = await database.pool(1)
    store = JobStore(database, NODE, kinds=["note"], queues=None, lease=30, poll=1, notify=False, pool=pool)
    yield store
    await store.close()
    pool.terminate()


async def enqueue_apart(task, conn, partitions: int, **options: Any) -> list[int]:
    """Enqueue one job in the default partition and three in partitions far apart; returns their ids."""
    ids = []
    for offset in (0, SIZE, (partitions // 2) * SIZE, (partitions - 1) * SIZE):
        await conn.execute(f"select setval('howdah.job_id', {FIRST + 10 + offset})")
        ids.append((await task.using(**options).enqueue(offset)).id)
    return ids


async def claim_all(store) -> list[Any]:
    jobs: list[Any] = []
    while some := await store.claim(100, {}):
        jobs += some
    return sorted(jobs, key=lambda job: job.id)


def acks(jobs: list[Any], outcomes: list[Outcome]) -> list[Ack]:
    return [Ack(job, outcome, 1, error="E") for job, outcome in zip(jobs, outcomes, strict=True)]


async def test_outcomes_of_jobs_in_partitions_far_apart_are_recorded(app, task, store, conn, partitions):
    ids = await enqueue_apart(task, conn, partitions, key=None, max_attempts=2)
    jobs = await claim_all(store)
    outcomes = [Outcome.RETRY, Outcome.FAILED, Outcome.RELEASED, Outcome.CANCELLED]

    accepted = await store.ack(acks(jobs, outcomes), [])

    assert [job.id for job in jobs] == ids
    assert [ack.outcome for ack in accepted] == outcomes
    assert [(await app.admin.get(id)).state for id in ids] == ["queued", "failed", "queued", "cancelled"]
    again = await store.ack(acks(jobs, outcomes), [])
    assert [ack.job.id for ack in again] == [ids[1], ids[3]], "of a repeated report, what was recorded"


async def test_leases_of_jobs_in_partitions_far_apart_are_requeued(app, task, store, conn, partitions):
    ids = await enqueue_apart(task, conn, partitions, max_attempts=1)
    jobs = await claim_all(store)
    await store.ack(acks(jobs[:1], [Outcome.FAILED]), [])

    assert await store.release([job.token for job in jobs]) == 3
    assert [(await app.admin.get(id)).state for id in ids] == [State.FAILED, *[State.QUEUED] * 3]

    assert [job.id for job in await claim_all(store)] == ids[1:]
    await conn.execute("update howdah.lease set expires_at = now() - interval '1 minute'")
    while (await store.reset())[0]:
        pass
    assert [(await app.admin.get(id)).state for id in ids] == [State.FAILED] * 4, "their only attempt was used up"
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_jobs_in_partitions_far_apart_are_found(app, task, conn, partitions):
    ids = await enqueue_apart(task, conn, partitions)

    rows = await conn.fetch(STATEMENTS["get"], [*ids, 17], 1000)
    assert [row["id"] for row in rows] == ids[::-1]
    rows = await conn.fetch(STATEMENTS["get"], [ids[2], 17], 1000)
    assert [(row["id"], row["state"]) for row in rows] == [(ids[2], "queued")]


async def test_only_the_partitions_of_the_jobs_are_locked(app, database, task, store, conn, partitions):
    await conn.execute(f"select setval('howdah.job_id', {FIRST + SIZE})")
    await app.enqueue_many(task.job(n) for n in range(20))
    jobs = await claim_all(store)
    count = len(jobs) // 2
    ones = [1] * count
    retry = [[job.token for job in jobs[:count]], [job.id for job in jobs[:count]], ones, [b"r"] * count]
    calls = {
        "ack": (NODE, *retry, [9.0] * count, ones, *([[None] * count] * 4), []),
        "release": (NODE, list({job.token for job in jobs})),
        "get": ([jobs[0].id], 1000),
    }
    session = await database.connect("ack")
    try:
        for name, arguments in calls.items():
            async with session.transaction():
                assert await session.fetch(STATEMENTS[name], *arguments)
                locked = await session.fetchval(LOCKED)
            few = locked <= 4
            assert few == (partitions > 16), f"{name} locks {locked} partitions; a few of them are planned all together"
    finally:
        await session.close()


async def enqueue_in(task, conn, partition: int, count: int = 1) -> list[int]:
    """Enqueue jobs one at a time with ids in this partition."""
    used = await conn.fetchval("select count(*) from howdah.job")
    await conn.execute(f"select setval('howdah.job_id', {FIRST + partition * SIZE + used})")
    return [(await task.enqueue(n)).id for n in range(count)]


async def test_jobs_are_claimed_in_order_whatever_partition_they_are_in(task, store, conn, partitions):
    ids: list[int] = []
    for partition in (3, 3, 3, 1, 3, 0, 3, 3, 4, 4, 3, 1):
        ids += await enqueue_in(task, conn, partition, 2)

    claimed: list[int] = []
    while some := await store.claim(3, {}):
        claimed += [job.id for job in some]
        assert [job.args["n"] for job in some] == [ids.index(job.id) % 2 for job in some]

    assert claimed == ids


async def test_a_run_over_the_border_of_two_partitions_is_claimed(app, task, store, conn, partitions):
    [first] = await enqueue_in(task, conn, 2)
    await conn.execute(f"select setval('howdah.job_id', {FIRST + 500 + 2 * SIZE - 5})")
    ids = [each.id for each in await app.enqueue_many(task.job(n) for n in range(10))]
    last = await enqueue_in(task, conn, 2)

    assert [[job.id for job in await store.claim(most, {})] for most in (1, 20, 20)] == [[first], [*ids, *last], []]


async def test_a_claim_locks_only_the_partition_of_its_jobs(task, store, conn, partitions):
    ids = await enqueue_in(task, conn, 3, 4)
    assert [[job.id for job in await store.claim(1, {})] for _ in "12"] == [ids[:1], ids[1:2]]

    async with store._claims.use() as session, session.transaction():
        statement = store._claimer._claims._statement or STATEMENTS["claim"]
        rows = await session.fetch(statement, ["default"], [9], 9, NODE, 30.0, ["note"], 9, "{}", 0)
        locked = await session.fetchval(LOCKED)

    assert [row["id"] for row in rows] == ids[2:]
    assert locked == (1 if partitions > 16 else partitions + 5)


async def test_claims_go_on_when_their_partition_is_pruned(task, store, conn, partitions):
    [old, _] = await enqueue_in(task, conn, 1, 2)
    for _ in "12":
        [job] = await store.claim(1, {})
        await store.ack([Ack(job, Outcome.OK, 1)], [job.token])
    [kept] = await enqueue_in(task, conn, 1)
    await enqueue_in(task, conn, 4)
    while await conn.fetchval("select howdah.prune_partition(now() + interval '1 day', now())") is not None:
        pass
    assert await conn.fetchval("select count(*) from howdah.job where id = $1", old) == 0

    assert (await claim_all(store))[0].id == kept
