"""Requests of one worker about the same jobs at the same time: every job stays in exactly one place."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, Worker
from control_plane.test_leases_api import finish_all, held, lost, report
from kit.node import eventually

pytestmark = pytest.mark.anyio

OUTCOMES = ("ok", "ok", "ok", "retry", "failed", "snoozed", "released", "cancelled")
TWICE = """
    select j.id from howdah.job j
    cross join lateral (
        select (select count(*) from howdah.done d where d.id = j.id)
            + (select count(*) from howdah.later l where l.id = j.id)
            + (select count(*) from howdah.ready r where j.id >= r.lo and j.id < r.hi)
            + (select count(*) from howdah.lease l cross join lateral unnest(l.los, l.his) u(lo, hi)
               where j.id >= u.lo and j.id < u.hi
                 and not exists (select from howdah.done d where d.id = j.id)
                 and not exists (select from howdah.gone g where g.token = l.token and g.id = j.id)) as places
    ) n
    where n.places > 1
    order by j.id
"""
"""The jobs in more than one place."""
MISCOUNTED = """
    select l.token, l.remaining,
        (select count(*) from unnest(l.los, l.his) u(lo, hi) cross join lateral generate_series(u.lo, u.hi - 1) i(id)
         where not exists (select from howdah.done d where d.id = i.id)
           and not exists (select from howdah.gone g where g.token = l.token and g.id = i.id)) as jobs
    from howdah.lease l
"""


async def miscounted(conn: Any) -> list[tuple[int, int, int]]:
    """The leases that count fewer jobs than they have: they would end too early."""
    return [tuple(row) for row in await conn.fetch(MISCOUNTED) if row["remaining"] < row["jobs"]]


async def twice(conn: Any) -> list[int]:
    return [row["id"] for row in await conn.fetch(TWICE)]


async def test_a_job_that_is_released_while_its_success_is_reported_is_in_one_place(plane, worker, conn, direct):
    """As when a worker that is told to stop releases what it runs, and its handler ends at the same moment."""
    for _ in range(3):
        await plane.enqueue()
    one, two, three = await worker.claim(3)
    token = one["token"]
    other = await direct.connect("release")
    try:
        async with other.transaction():
            await other.execute("select from howdah.lease where token = $1 for update", token)
            reporting = asyncio.create_task(worker.ack(report(two)))

            async def waits() -> bool:
                return bool(await conn.fetchval("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"))

            await eventually(waits)
            await other.execute(
                "select * from howdah.ack($1, array[$2::int8], array[$3::int8], array[1::int2], array['b'::\"char\"],"
                " array[0::float8], array[0::int8], array[null::json], array[null], array[null], array[null], '{}')",
                worker.id,
                token,
                two["id"],
            )
        assert (await reporting).body == {"accepted": []}, "it was released before"
    finally:
        await other.close()
    assert (await lost(conn), await twice(conn), await miscounted(conn)) == ([], [], [])
    assert (await worker.ack(report(one))).body["accepted"]
    assert await lost(conn) == [], "the lease ends with its last job"
    assert (await worker.complete(three)).status == 200
    await finish_all(worker, conn, 3)


def request(rng: random.Random, worker: Worker, other: Worker, jobs: list[Any]) -> Any:
    """A request that a confused worker could send: about some of its jobs, in any order, with any outcome."""
    some = rng.sample(jobs, rng.randint(1, len(jobs)))
    token = rng.choice(jobs)["token"]
    finished = {"finished": [token]} if rng.random() < 0.3 else {}
    match rng.randrange(8):
        case 0:
            return worker.complete(some[0])
        case 1:
            return worker.fail(some[0], retry_after=0, retry=rng.random() < 0.5)
        case 2:
            return worker.tell("release", {"held": held(*some)})
        case 3:
            return worker.tell("release", {"tokens": [token]}) if rng.random() < 0.2 else worker.beat(*some)
        case 4:
            return other.ack(*[report(job, rng.choice(OUTCOMES)) for job in some], **finished)
        case _:
            return worker.ack(*[report(job, rng.choice(OUTCOMES)) for job in some * rng.randint(1, 2)], **finished)


@pytest.mark.parametrize("seed", range(4))
async def test_requests_about_the_same_jobs_at_once_keep_each_in_one_place(
    plane: ControlPlane, conn: Any, seed: int
) -> None:
    rng = random.Random(seed)
    worker, other = await plane.worker(), await plane.worker()
    total = 0
    for _ in range(15):
        new = rng.randint(2, 5)
        await conn.execute(
            "select howdah.enqueue('noop', '{}', max_attempts => 100) from generate_series(1, $1::int)", new
        )
        total += new
        jobs = await worker.claim(rng.randint(2, 5))
        if jobs:
            requests = [request(rng, worker, other, jobs) for _ in range(rng.randint(2, 6))]
            assert {each.status for each in await asyncio.gather(*requests)} <= {200, 409}
        assert (await lost(conn), await twice(conn), await miscounted(conn)) == ([], [], [])
    await worker.leave()
    await conn.execute("update howdah.later set due_at = now()")
    await finish_all(other, conn, total)
    assert await conn.fetchval("select count(*) from howdah.lease") == 0
