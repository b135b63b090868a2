"""Claims of jobs that were enqueued one at a time: neighbours are leased as one run, and the order stays exact."""

from __future__ import annotations

import pytest

from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome

pytestmark = pytest.mark.anyio

NODE = 1


@pytest.fixture
async def tasks(app):
    @app.task
    async def note(n: int) -> None: ...

    @app.task
    async def mail(n: int) -> None: ...

    return note, mail


@pytest.fixture
async def store(app, database, tasks):
    pool = await database.pool(1)
    store = JobStore(database, NODE, kinds=["note", "mail"], queues=None, lease=30, poll=1, notify=False, pool=pool)
    yield store
    await store.close()
    pool.terminate()


async def claim_all(store, most=100):
    """Claim until nothing is left; a claim locks few runs until it has seen how many it needs."""
    claims = []
    while jobs := await store.claim(most, {}):
        claims.append(jobs)
    return claims


async def leases(conn):
    return [list(row) for row in await conn.fetch("select los, his, remaining from howdah.lease order by token")]


async def test_jobs_enqueued_one_at_a_time_are_one_run_of_the_lease(store, conn, tasks):
    ids = [(await tasks[0].enqueue(n)).id for n in range(8)]
    jobs = await store.claim(100, {})

    assert [job.id for job in jobs] == ids
    assert await leases(conn) == [[[ids[0]], [ids[-1] + 1], 8]]
    assert await store.ack([Ack(job, Outcome.OK, 1) for job in jobs], [jobs[0].token])
    assert await leases(conn) == []


async def test_other_kinds_queues_and_priorities_between_them_keep_their_places(store, conn, tasks):
    note, mail = tasks
    ways = [note, note, mail, note, note.using(priority=5), note.using(queue="a"), note, mail.using(queue="a"), mail]
    ids = [(await way.enqueue(n)).id for n, way in enumerate(ways)]
    jobs = [job for claimed in await claim_all(store) for job in claimed]

    by_queue = {queue: [ids.index(job.id) for job in jobs if job.queue == queue] for queue in ("a", "default")}
    assert by_queue == {"a": [5, 7], "default": [4, 0, 1, 2, 3, 6, 8]}
    assert {ids.index(job.id) for job in jobs if job.kind == "mail"} == {2, 7, 8}


async def test_a_job_that_failed_once_is_not_joined_with_its_new_neighbours(store, conn, tasks):
    first = (await tasks[0].enqueue(0)).id
    [job] = await store.claim(1, {})
    await store.ack([Ack(job, Outcome.RETRY, 1, error="E")], [job.token])
    second = (await tasks[0].enqueue(1)).id
    await conn.execute("update howdah.later set due_at = now() - interval '1 second'")
    store._claimer._promoted = 0.0
    jobs = [job for claimed in await claim_all(store) for job in claimed]

    assert {job.id: job.attempt for job in jobs} == {first: 2, second: 1}


async def test_a_joined_run_is_released_in_its_order(store, conn, tasks):
    ids = [(await tasks[0].enqueue(n)).id for n in range(8)]
    [job, *_] = await store.claim(100, {})
    late = [(await tasks[0].enqueue(n)).id for n in range(3)]
    await store.release([job.token])
    store.forget()  # as once a second: released jobs are below the watermark
    jobs = [job for claimed in await claim_all(store) for job in claimed]

    assert [job.id for job in jobs] == ids + late
    assert {job.attempt for job in jobs} == {1}


async def test_every_queue_is_served_though_a_claim_locks_few_runs(store, conn, tasks):
    for queue in range(30):
        for n in range(4):
            await tasks[0].using(queue=f"queue {queue}", priority=n % 2).enqueue(n)
    claims = await claim_all(store, most=10)

    assert sum(map(len, claims)) == 120
    assert max(map(len, claims)) == 10
    served = [{job.queue for job in claimed} for claimed in claims[:6]]
    assert len(set.union(*served)) > 6, "each claim begins with the next queue"


async def test_a_key_is_free_and_a_result_is_stored_after_the_fast_ack(store, conn, tasks):
    for n in range(3):
        await tasks[0].using(key=f"key {n}").enqueue(n)
    other = (await tasks[0].using(key="other").enqueue(3)).id
    jobs = await store.claim(100, {})
    done = [Ack(job, Outcome.OK, 1, result=b'{"n": %d}' % n) for n, job in enumerate(jobs[:3])]
    await store.ack(done, [])

    assert [row[0] for row in await conn.fetch("select key from howdah.job_key")] == ["other"]
    assert [row[0] for row in await conn.fetch("select result from howdah.done order by id")] == [
        b'{"n": 0}',
        b'{"n": 1}',
        b'{"n": 2}',
    ]
    assert await conn.fetchval("select id from howdah.job_key") == other


async def test_a_key_that_another_job_took_meanwhile_is_kept(store, conn, tasks):
    """A job is retried by a person after its key went to another job: the fast ack deletes no key but its own."""
    await tasks[0].using(key="k").enqueue(0)
    [job] = await store.claim(1, {})
    await conn.execute("update howdah.job_key set id = id + 1000")
    await store.ack([Ack(job, Outcome.OK, 1)], [job.token])

    assert await conn.fetchval("select id from howdah.job_key") == job.id + 1000
    assert await conn.fetchval("select count(*) from howdah.done") == 1
