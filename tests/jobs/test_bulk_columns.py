"""Jobs by column: a bulk of everything at once is what each of its jobs would be alone."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from howdah import NewJob
from howdah.jobs.bulk import PIECE, JobColumns

pytestmark = pytest.mark.anyio

ALONE = """
select id from howdah.enqueue($1, $2::text::json, $3, $4, $5, $6, $7, $8, $9, $10::text::json, $11)
"""
SEEN = """
select j.kind, j.args::text as args, j.queue, j.priority, j.max_attempts, j.timeout, rtrim(j.key, '+') as key,
    j.meta::text as meta, j.trace, j.run_at is null as undated,
    round(extract(epoch from j.run_at - j.enqueued_at) / 600) as dated,
    concat(case when l.id is not null then 'later' end, case when r.lo is not null then 'ready' end) as place,
    case when l.id is null then (r.queue, r.kind, r.priority)::text else (l.queue, l.kind, l.priority)::text end as lane
from howdah.job j
left join howdah.later l on l.id = j.id
left join howdah.ready r on j.id >= r.lo and j.id < r.hi
where j.id = any($1::bigint[])
order by array_position($1::bigint[], j.id)
"""
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def mixture(seed: int, count: int, *, only: tuple[str, ...] = ()) -> list[NewJob]:
    """Jobs that differ in these fields, in all of them if none is named."""
    dice = random.Random(seed)
    choices = {
        "kind": ["one", "two\\", "three\tlong"[:5]],
        "queue": ["default", "mail"],
        "priority": [0, 0, 5, -3],
        "run_at": [None, datetime.now(UTC) + timedelta(hours=3), datetime.now(UTC) - timedelta(hours=3)],
        "max_attempts": [5, 1],
        "timeout": [None, 1.5, 60],
        "meta": [None, b'{"who":"a\\\\b"}', b"{}"],
        "trace": [None, "00-a-b-01"],
    }
    jobs = []
    for n in range(count):
        options = {name: dice.choice(some) for name, some in choices.items() if not only or name in only}
        if not only and options["run_at"] is None and dice.random() < 0.2:
            options["delay"] = dice.choice([0, 7200.0])
        if not only or "key" in only:
            options["key"] = dice.choice([None, f"key {n}"])
        text = dice.choice(["plain", "back\\\\slash", "\\n"])
        jobs.append(NewJob(**{"kind": "one", **options}, payload=b'{"n":%d,"text":"%b"}' % (n, text.encode())))
    return jobs


@pytest.mark.parametrize("only", [(), ("kind",), ("key",), ("trace", "meta"), ("run_at",), ("timeout",)], ids=str)
async def test_a_bulk_is_what_each_would_be_alone(app, conn, only):
    jobs = mixture(7, 300, only=only)
    bulk = [each.id for each in await app.enqueue_many(jobs)]
    alone = [
        await conn.fetchval(
            ALONE,
            job.kind,
            job.payload.decode(),
            job.queue,
            job.priority,
            job.run_at,
            job.delay,
            job.max_attempts,
            job.timeout,
            job.key and job.key + "+",
            job.meta and job.meta.decode(),
            job.trace,
        )
        for job in jobs
    ]
    assert [dict(row) for row in await conn.fetch(SEEN, bulk)] == [dict(row) for row in await conn.fetch(SEEN, alone)]
    assert len(bulk) == len(set(bulk)) == len(jobs)


async def test_those_whose_key_is_held_are_left_out_and_the_others_stay_what_they_are(app, conn):
    [holder] = await app.enqueue_many([NewJob(kind="one", key="held")])
    jobs = [
        NewJob(
            kind=("one", "two")[n % 2],
            payload=b'{"n":%d}' % n,
            key="held" if n % 5 == 0 else None,
            delay=3600 if n % 3 == 0 else None,
        )
        for n in range(60)
    ]
    made = await app.enqueue_many(jobs)
    assert [(each.fresh, each.id == holder.id) for each in made] == [(n % 5 > 0, n % 5 == 0) for n in range(60)]
    rows = await conn.fetch(SEEN, [each.id for each in made if each.fresh])
    assert [(row["args"], row["kind"], row["place"]) for row in rows] == [
        (job.payload.decode(), job.kind, "later" if job.delay else "ready") for job in jobs if job.key is None
    ]
    assert [each.fresh for each in await app.enqueue_many([jobs[0], jobs[5]])] == [False, False]
    assert await conn.fetchval("select count(*) from howdah.job") == 49


def test_what_all_have_in_common_is_written_once_and_what_none_has_not_at_all():
    columns = JobColumns([NewJob(kind="k", payload=b'{"n":%d}' % n) for n in range(3)])
    columns.number([7, 8, 9], NOW)
    assert columns.columns() == ["id", "priority", "max_attempts", "queue", "kind", "args"]
    assert b"".join(columns.lines()).splitlines() == [b'%d\t0\t5\tdefault\tk\t{"n":%d}' % (7 + n, n) for n in range(3)]


def test_lines_are_sent_in_pieces():
    columns = JobColumns([NewJob(kind="k")] * (2 * PIECE + 1))
    columns.number([*range(2 * PIECE + 1)], NOW)
    assert [piece.count(b"\n") for piece in columns.lines()] == [PIECE, PIECE, 1]


def test_every_job_is_checked_that_differs_from_those_before():
    good, bad = NewJob(kind="k", timeout=5), NewJob(kind="k", timeout=-5)
    for jobs in ([bad], [good, bad], [bad, good], [good] * 10 + [bad] + [good] * 10):
        with pytest.raises(ValueError, match="timeout must be above zero"):
            JobColumns(jobs)
