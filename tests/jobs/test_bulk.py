"""BulkEnqueue enqueue: several chunks, each made while the one before it is on its way."""

from __future__ import annotations

import asyncio
import tracemalloc
from itertools import count

import asyncpg
import pytest

from howdah import ArgumentError, Howdah, NewJob
from howdah.jobs.bulk import CHUNK, CHUNK_BYTES, STEP

pytestmark = pytest.mark.anyio


@pytest.fixture
def work(app: Howdah):
    @app.task
    async def work(n: int, text: str = "") -> None: ...

    return work


async def waiting(conn) -> int:
    return await conn.fetchval("select count(*) from howdah.job")


async def test_every_job_of_many_chunks_is_where_it_says(app, work, conn):
    last = work.using(queue="last", priority=-1)
    jobs = [(last if n % 3 == 0 else work).job(n) for n in range(2 * CHUNK + 7)]
    made = await app.enqueue_many(iter(jobs))
    rows = {row["id"]: row for row in await conn.fetch("select id, queue, priority, args from howdah.job")}
    assert len(made) == len(rows) == len(jobs)
    for job, each in zip(jobs, made, strict=True):
        row = rows[each.id]
        assert (row["queue"], row["priority"], row["args"]) == (job.queue, job.priority, job.payload)
    runs = await conn.fetch("select lo, hi, queue from howdah.ready")
    assert sum(run["hi"] - run["lo"] for run in runs) == len(jobs)
    assert all(rows[id]["queue"] == run["queue"] for run in runs for id in range(run["lo"], run["hi"]))
    for queue in ("default", "last"):  # those of a queue stay in the order they were given
        ids = [each.id for job, each in zip(jobs, made, strict=True) if job.queue == queue]
        assert ids == sorted(ids)


@pytest.mark.parametrize("at", [CHUNK // 2, CHUNK + 300, 2 * CHUNK])
async def test_when_making_them_fails_none_is_enqueued(app, work, conn, at):
    def jobs():
        for n in count():
            if n == at:
                raise ZeroDivisionError
            yield work.job(n)

    with pytest.raises(ZeroDivisionError):
        await app.enqueue_many(jobs())
    assert await waiting(conn) == 0
    await app.enqueue_many([work.job(1)])
    assert await waiting(conn) == 1


async def test_when_a_later_chunk_is_refused_none_is_enqueued(app, work, conn):
    jobs = [work.job(n) for n in range(CHUNK + 1)]
    jobs[-1] = NewJob(kind="work", priority=1000)
    with pytest.raises(ArgumentError, match="priority"):
        await app.enqueue_many(jobs)
    assert await waiting(conn) == 0


async def test_one_that_is_cancelled_meanwhile_enqueues_none(app, work, conn):
    def jobs():
        for n in range(10 * CHUNK):
            if n == CHUNK + 1000:
                enqueueing.cancel()
            yield work.job(n)

    enqueueing = asyncio.create_task(app.enqueue_many(jobs()))
    with pytest.raises(asyncio.CancelledError):
        await enqueueing
    assert await waiting(conn) == 0
    await app.enqueue_many([work.job(1)])
    assert await waiting(conn) == 1


async def test_what_a_line_of_copy_cannot_hold_as_it_is_arrives_unharmed(app, work, conn):
    odd = ["tab\t", "line\n", "return\r", "back\\slash", "\\N", "\\.", "plain"]
    raw = [NewJob(kind="work", payload=b'{\n\t"n": 1\r\n}'), NewJob(kind="work", payload=b'{"n": 2}')]
    made = await app.enqueue_many([work.job(1, text) for text in odd] + raw)
    for text, each in zip(odd, made, strict=False):
        assert await conn.fetchval("select args ->> 'text' from howdah.job where id = $1", each.id) == text
    for job, each in zip(raw, made[-2:], strict=True):
        assert await conn.fetchval("select args from howdah.job where id = $1", each.id) == job.payload


async def test_jobs_of_one_task_share_nothing_that_differs(app, work, conn):
    meta = {"who": "first"}
    with_meta = work.using(meta=meta)
    one = with_meta.job(1)
    meta["who"] = "second"
    await app.enqueue_many([one, with_meta.job(2), work.job(3)])
    rows = await conn.fetch("select args ->> 'n' as n, meta ->> 'who' as who from howdah.job order by id")
    assert {row["n"]: row["who"] for row in rows} == {"1": "first", "2": "second", "3": None}


def large(n: int, size: int) -> NewJob:
    return NewJob(kind="work", payload=b'{"n":%d,"text":"%s"}' % (n, b"x" * size))


async def test_large_arguments_take_bounded_memory(app, work, conn):
    size = 500_000
    await app.enqueue_many([work.job(1)])  # opens the connection
    tracemalloc.start()
    try:
        made = await app.enqueue_many(large(n, size) for n in range(300))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * (CHUNK_BYTES + STEP * size) < 300 * size
    ids = [each.id for each in made]
    assert ids == await conn.fetchval("select array_agg(id order by (args ->> 'n')::int) from howdah.job where id <> 1")


async def test_of_large_arguments_all_are_enqueued_or_none(app, work, conn):
    jobs = [large(n, CHUNK_BYTES // 10) for n in range(3 * STEP)]
    jobs[-1] = NewJob(kind="work", payload=b'{"n":}')  # only the server rejects it
    with pytest.raises(asyncpg.DataError):
        await app.enqueue_many(jobs)
    assert await waiting(conn) == 0


async def test_concurrent_calls_with_large_arguments_take_bounded_memory(app, conn):
    jobs = [large(n, 1_000_000) for n in range(120)]
    tracemalloc.start()
    try:
        await asyncio.gather(*map(app.enqueue, jobs))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < sum(len(job.payload) for job in jobs)
    assert await waiting(conn) == len(jobs)
