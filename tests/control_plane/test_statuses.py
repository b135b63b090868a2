"""The statuses of workers: idle, busy, draining, offline, exactly as people read them."""

from __future__ import annotations

import asyncio
import time

import pytest

pytestmark = pytest.mark.anyio


async def test_idle_busy_idle(plane, worker):
    assert await plane.status(worker.id) == "idle"
    await plane.enqueue()
    await plane.enqueue()
    one, two = await worker.claim(2)
    assert await plane.status(worker.id) == "busy"
    await worker.complete(one)
    assert await plane.status(worker.id) == "busy"
    await worker.fail(two)
    assert await plane.status(worker.id) == "idle"


async def test_a_batch_report_of_the_last_job_makes_idle(plane, worker):
    await plane.enqueue()
    job = await worker.one()
    assert await plane.status(worker.id) == "busy"
    done = {"id": job["id"], "token": job["token"], "attempt": 1, "outcome": "ok"}
    await worker.ack(done, finished=[job["token"]])
    assert await plane.status(worker.id) == "idle"


async def test_handing_back_the_last_job_makes_idle(plane, worker):
    await plane.enqueue()
    job = await worker.one()
    await worker.tell("release", {"tokens": [job["token"]]})
    assert await plane.status(worker.id) == "idle"


async def test_a_heartbeat_says_what_it_is(plane, worker):
    assert (await worker.beat()).body["status"] == "idle"
    assert (await worker.beat(running=2)).body["status"] == "busy"
    assert await plane.status(worker.id) == "busy"
    assert (await worker.beat()).body["status"] == "idle"
    await plane.enqueue()
    job = await worker.one()
    assert (await worker.beat(job)).body["status"] == "busy"  # it need not count what it names


async def test_draining_is_sticky(plane, worker):
    await plane.enqueue()
    job = await worker.one()
    response = await plane.ask("POST", f"/workers/{worker.id}/drain")
    assert (response.status, response.body["status"], response.body["id"]) == (200, "draining", worker.id)
    assert (await worker.beat(job)).body["status"] == "draining"
    assert (await worker.beat()).body["status"] == "draining"
    assert (await worker.complete(job)).status == 200
    assert await plane.status(worker.id) == "draining"
    assert (await worker.beat()).body["status"] == "draining"
    assert (await plane.ask("POST", f"/workers/{worker.id}/drain")).body["status"] == "draining"
    assert (await worker.tell("drain")).body["status"] == "draining"  # a worker may say it of itself


async def test_a_draining_worker_gets_204_with_the_reason(plane, worker):
    await plane.enqueue()
    await worker.tell("drain")
    for wait in (0, 30):
        began = time.monotonic()
        response = await worker.tell("claim", {"wait": wait})
        assert (response.status, response.headers["howdah-reason"]) == (204, "draining")
        assert time.monotonic() - began < 20, "it was let wait"


async def test_draining_ends_a_wait_for_jobs(plane, worker):
    waiting = asyncio.create_task(worker.tell("claim", {"wait": 50}))
    await asyncio.sleep(0.3)
    await plane.ask("POST", f"/workers/{worker.id}/drain")
    result = await asyncio.wait_for(waiting, 20)
    assert (result.status, result.headers.get("howdah-reason")) == (204, "draining")


async def test_silence_makes_offline_and_frees_the_jobs_then(serve, job_app, comes_to, conn):
    async with serve(heartbeat=0.4, offline_after=8.0) as plane:
        worker, other = await plane.worker(), await plane.worker()
        id = await plane.enqueue()
        await asyncio.sleep(6.0)
        await other.beat()
        began = time.monotonic()
        job = await worker.one()  # its lease alone would last eight seconds from here
        await comes_to(lambda: plane.status(worker.id), "offline", 8)
        assert (await plane.get("/workers", params={"status": "offline"})).body["workers"][0]["id"] == worker.id
        assert await plane.status(other.id) == "idle"
        assert await conn.fetchval("select count(*) from howdah.lease where expires_at > clock_timestamp()") == 0
        assert time.monotonic() - began < 7.9

        [again] = await other.claim(1, wait=30)
        assert (again["id"], again["attempt"]) == (id, 2)
        assert (await worker.complete(job)).status == 409

        assert (await worker.beat(job)).body == {
            "status": "busy",
            "fates": {"jobs": {"lost": [{"id": id, "token": job["token"]}]}},
        }
        assert (await worker.beat()).body["status"] == "idle"
        assert await plane.status(worker.id) == "idle"


async def test_a_draining_worker_that_was_offline_is_draining_again(serve, job_app, comes_to):
    async with serve(heartbeat=0.4, offline_after=1.0) as plane:
        worker = await plane.worker()
        await worker.tell("drain")
        await comes_to(lambda: plane.status(worker.id), "offline", 30)
        assert (await worker.beat()).body["status"] == "draining"
        assert await plane.status(worker.id) == "draining"


async def test_a_worker_that_leaves_is_offline_and_its_jobs_are_free(plane, worker):
    id = await plane.enqueue()
    await worker.one()
    assert (await worker.leave()).status == 204
    assert await plane.status(worker.id) == "offline"
    other = await plane.worker()
    again = await other.one()
    assert (again["id"], again["attempt"]) == (id, 1)
    assert (await worker.beat()).status == 404


async def test_an_admin_sends_a_worker_away(plane, worker):
    assert (await plane.ask("DELETE", f"/workers/{worker.id}")).status == 204
    assert (await plane.ask("DELETE", f"/workers/{worker.id}")).status == 204
    assert (await worker.beat()).status == 404


async def test_workers_are_counted_by_status(plane, worker):
    busy = await plane.worker(slots=3)
    await busy.beat(running=2)
    stats = (await plane.get("/stats")).body["workers"]
    counts = {each["status"]: (each["nodes"], each["slots"], each["running"]) for each in stats}
    assert counts == {"idle": (1, 1, 0), "busy": (1, 3, 2)}
    response = await plane.get("/workers", params={"status": "asleep"})
    assert (response.status, response.error["field"]) == (400, "status")


SILENT = "update howdah.node set beat_at = now() - $2 * interval '1 second' where id = $1"


async def test_how_long_a_worker_may_be_silent_is_for_its_control_plane_to_say(serve, job_app, conn):
    async with serve(heartbeat=60, offline_after=600) as plane:
        worker = await plane.worker()
        local = await conn.fetchval("insert into howdah.node (name) values ('local') returning id")
        for id in (worker.id, local):
            await conn.execute(SILENT, id, 100.0)
        await conn.execute("select howdah.reset()")

        assert await plane.status(local) == "offline"
        assert await plane.status(worker.id) == "idle"
        assert (await worker.beat()).status == 200


async def test_a_worker_does_not_look_alive_for_ever_when_its_control_plane_is_gone(serve, job_app, conn):
    async with serve() as plane:
        worker = await plane.worker()
    await conn.execute(SILENT, worker.id, 2 * 86400.0)
    await conn.execute("select howdah.reset()")

    row = await conn.fetchrow(
        "select state, stopped_at is not null as stopped from howdah.node where id = $1", worker.id
    )
    assert tuple(row) == ("offline", True)
