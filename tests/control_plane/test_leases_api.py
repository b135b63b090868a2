"""What a worker says of its leases never loses a job: `finished` is a hint, `/release` releases what it names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control_plane.conftest import Worker
from howdah.control_plane.job_queue import RemoteJobQueue

pytestmark = pytest.mark.anyio

NO_PLACE = """
    select j.id from howdah.job j
    where not exists (select from howdah.done d where d.id = j.id)
      and not exists (select from howdah.later l where l.id = j.id)
      and not exists (select from howdah.ready r where j.id >= r.lo and j.id < r.hi)
      and not exists (
          select from howdah.lease l cross join lateral unnest(l.los, l.his) u(lo, hi)
          where j.id >= u.lo and j.id < u.hi
            and not exists (select from howdah.gone g where g.token = l.token and g.id = j.id))
    order by j.id
"""
"""The jobs that are neither queued, scheduled, held nor over."""


def report(job: Any, outcome: str = "ok", **more: Any) -> dict[str, Any]:
    return {"id": job["id"], "token": job["token"], "attempt": job["attempt"], "outcome": outcome, **more}


def held(*jobs: Any) -> list[dict[str, Any]]:
    return [{"id": job["id"], "token": job["token"]} for job in jobs]


async def finish_all(worker: Worker, conn: Any, jobs: int) -> None:
    """Run what is left, until every job is done."""
    while await conn.fetchval("select count(*) from howdah.done") < jobs:
        await worker.beat()  # or it counts as silent after a few seconds
        for job in await worker.claim(100, wait=1):
            assert (await worker.complete(job)).status == 200


async def lost(conn: Any) -> list[int]:
    return [row["id"] for row in await conn.fetch(NO_PLACE)]


async def test_jobs_in_no_place_are_found(plane, worker, conn):
    """The negative control: a lease that is deleted unseen loses its jobs."""
    ids = [await plane.enqueue() for _ in range(3)]
    jobs = await worker.claim(3)
    assert await lost(conn) == []

    await conn.execute("delete from howdah.lease where token = $1", jobs[0]["token"])
    assert await lost(conn) == ids


async def test_finished_loses_no_job_of_which_nothing_was_said(plane, conn):
    other = await plane.worker()
    for reported in range(3):
        for more in ({}, {"result": 1}, {"outcome": "retry"}, {"outcome": "snoozed"}):
            worker = await plane.worker()
            ids = [await plane.enqueue() for _ in range(3)]
            jobs = await worker.claim(3, wait=10)
            assert len(jobs) == 3

            response = await worker.ack({**report(jobs[reported]), **more}, finished=[jobs[0]["token"]])
            assert [each["id"] for each in response.body["accepted"]] == [jobs[reported]["id"]]

            assert await lost(conn) == []
            left = [job["id"] for job in jobs if job is not jobs[reported]]
            assert {(await plane.job(id))["state"] for id in left} <= {"queued", "running"}
            await finish_all(other, conn, max(ids))
            rows = await conn.fetch("select attempt from howdah.done where id = any($1::int8[])", left)
            assert [row["attempt"] for row in rows] == [1, 1], "no attempt was charged"


async def test_finished_alone_loses_nothing(plane, worker, conn):
    for _ in range(3):
        await plane.enqueue()
    jobs = await worker.claim(3)

    assert (await worker.ack(finished=[jobs[0]["token"]])).body == {"accepted": []}
    assert await lost(conn) == []
    await finish_all(await plane.worker(), conn, 3)


async def test_nor_do_repeated_reports_that_come_in_any_order(plane, worker, conn):
    for _ in range(4):
        await plane.enqueue()
    one, two, three, four = await worker.claim(4)
    token = one["token"]

    for reports in ([report(two)], [report(one)], [report(two)], [report(three, "retry"), report(one)], [report(four)]):
        await worker.ack(*reports, finished=[token])
        assert await lost(conn) == []
        await worker.tell("release", {"held": held(one)})
        assert await lost(conn) == []
    await worker.tell("release", {"tokens": [token]})
    await worker.complete(four)
    assert await lost(conn) == []


async def test_parallel_single_reports_with_finished_on_the_one_sent_last_lose_nothing(job_app, serve, conn):
    jobs = 600
    await conn.execute("select howdah.enqueue('noop', '{}') from generate_series(1, $1::int)", jobs)
    async with serve(offline_after=600) as plane:  # none of them sends a heartbeat
        workers = [await plane.worker() for _ in range(8)]

        async def work(worker: Worker) -> None:
            by_ack = workers.index(worker) % 4 > 0
            while claimed := await worker.claim(3):
                last = [{}] * (len(claimed) - 1) + [{"finished": [claimed[0]["token"]]}]
                requests = [
                    worker.ack(report(job), **more) if by_ack else worker.complete(job)
                    for job, more in zip(claimed, last, strict=True)
                ]
                assert {each.status for each in await asyncio.gather(*requests)} == {200}

        await asyncio.gather(*map(work, workers))
        assert await lost(conn) == []
        await finish_all(await plane.worker(), conn, jobs)
        assert await conn.fetchval("select count(*) from howdah.lease") == 0


# ---------------------------------------------------------------- release


async def test_a_release_releases_the_jobs_it_names_and_no_other(plane, worker, conn):
    for _ in range(3):
        await plane.enqueue()
    first, second, third = await worker.claim(3)

    assert (await worker.tell("release", {"held": held(second)})).body == {"jobs": 1}
    kept = (await worker.beat(first, third)).body["fates"]["jobs"]
    assert kept == {"kept": held(first, third)}
    again = await (await plane.worker()).one()
    assert (again["id"], again["attempt"]) == (second["id"], 1)
    assert [(await worker.complete(job)).status for job in (first, third)] == [200, 200]
    assert (await worker.complete(second)).status == 409, "it is another worker's by now"
    assert (await worker.tell("release", {"held": held(second)})).body == {"jobs": 0}
    assert (await plane.job(second["id"]))["state"] == "running"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_job_that_a_release_does_not_name_still_runs(plane, worker, monkeypatch, guarded):
    """Unguarded, the whole lease is released, and the outcome of the other job is rejected."""

    async def release_leases(queue: RemoteJobQueue, node: int, keys: Any) -> int:
        return await queue.release(node, list({token for token, _ in keys}))

    if not guarded:
        monkeypatch.setattr(RemoteJobQueue, "release_jobs", release_leases)
    for _ in range(2):
        await plane.enqueue()
    first, second = await worker.claim(2)

    assert (await worker.tell("release", {"held": held(second)})).body == {"jobs": 1 if guarded else 2}
    assert (await worker.complete(first)).status == (200 if guarded else 409)


async def test_a_lease_all_of_whose_jobs_are_named_keeps_its_place_in_the_queue(plane, worker, conn):
    ids = [await plane.enqueue() for _ in range(4)]
    jobs = await worker.claim(3)
    await worker.complete(jobs[1])

    assert (await worker.tell("release", {"held": held(jobs[0], jobs[2])})).body == {"jobs": 2}
    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    assert await conn.fetchval("select array_agg(lo order by rid, lo) from howdah.ready") == [ids[0], ids[2], ids[3]]


async def test_a_release_names_jobs_by_number(worker):
    response = await worker.tell("release", {"held": [{"id": "x", "token": 1}]})
    assert (response.status, response.error["field"]) == (400, "held")
