"""What workers say over HTTP, and what they hear: register, beat, claim, drain, leave."""

from __future__ import annotations

import asyncio
import time

import pytest

from kit.node import eventually

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- register


async def test_a_worker_registers_and_is_shown(plane):
    made = await plane.ask(
        "POST",
        "/workers/register",
        {"hostname": "gpu-1", "kinds": ["noop"], "labels": ["gpu"], "queues": ["default"], "slots": 4, "version": "7"},
        token=plane.tokens["work"],
    )
    assert made.status == 201
    assert made.body["credential"].startswith("hwd_node_")
    assert (made.body["heartbeat"], made.body["lease"]) == (0.5, 5.0)

    shown = (await plane.get(f"/workers/{made.body['id']}", token=plane.tokens["read"])).body
    assert (shown["name"], shown["status"], shown["remote"], shown["version"]) == ("gpu-1", "idle", True, "7")
    assert (shown["kinds"], shown["labels"], shown["queues"], shown["slots"]) == (["noop"], ["gpu"], ["default"], 4)
    listed = (await plane.get("/workers")).body["workers"]
    assert [each["id"] for each in listed] == [made.body["id"]]
    assert "credential" not in str(listed)


async def test_every_registration_is_a_worker_of_its_own(plane):
    one, two = await plane.worker(), await plane.worker()
    assert one.id != two.id
    assert one.credential != two.credential


async def test_workers_are_listed_newest_first_whatever_their_ids(plane, conn):
    await conn.execute(
        """insert into howdah.node (id, name, started_at)
        values (2000000001, 'old', now() - interval '1 hour'), (1500000001, 'new', now())"""
    )
    assert [each["name"] for each in (await plane.get("/workers")).body["workers"]] == ["new", "old"]


WRONG_REGISTRATIONS = [
    ({"hostname": ""}, "hostname"),
    ({"hostname": "a\x1b[2J"}, "hostname"),
    ({"hostname": 5}, "hostname"),
    ({"slots": 0}, "slots"),
    ({"slots": 10**30}, "slots"),
    ({"labels": ["a+b"]}, "labels"),
    ({"labels": [f"l{i}" for i in range(7)], "queues": ["default"]}, "labels"),
    ({"queues": []}, "queues"),
    ({"queues": ["a\x00"]}, "queues"),
    ({"queues": ["a+" + "b" * 60]}, "queues"),
    ({"kinds": ["x" * 101]}, "kinds[0]"),
    ({"kinds": ["\x07"]}, "kinds"),
    ({"tables": ["nowhere"]}, "tables"),
    ({"colour": "red"}, "colour"),
]


async def test_what_cannot_be_registered_is_refused_with_the_field_named(plane):
    for wrong, field in WRONG_REGISTRATIONS:
        response = await plane.ask("POST", "/workers/register", {"hostname": "w", **wrong})
        assert (response.status, response.error["code"], response.error["field"]) == (400, "INVALID", field), wrong
    assert (await plane.get("/workers")).body["workers"] == []


async def test_a_field_that_is_missing_is_named(plane, worker):
    response = await plane.ask("POST", "/workers/register", {})
    assert (response.status, response.error["field"]) == (400, "hostname")
    response = await worker.ack({"id": 1})
    assert (response.status, response.error["field"]) == (400, "acks[0].token")


# ---------------------------------------------------------------- unknown and gone


VERBS = [
    ("heartbeat", {}),
    ("claim", {}),
    ("ack", {"acks": []}),
    ("release", {}),
    ("complete/1", {"token": 1}),
    ("fail/1", {"token": 1}),
    ("log/1", {"token": 1}),
    ("run/1", {"token": 1, "state": "running"}),
]


async def test_a_worker_that_is_not_known_hears_404_and_registers_again(plane, worker):
    gone = await plane.worker()
    assert (await gone.leave()).status == 204
    for verb, body in VERBS:
        for response in (
            await plane.ask("POST", f"/workers/999999/{verb}", body, token=worker.credential),
            await gone.tell(verb, body),
        ):
            assert (response.status, response.error["code"]) == (404, "UNKNOWN"), verb
            assert "register again" in response.error["message"]


async def test_a_job_that_is_not_known_is_404(worker):
    for verb in ("complete", "fail"):
        response = await worker.tell(f"{verb}/123456", {"token": 1})
        assert (response.status, response.error["message"]) == (404, "there is no job 123456")


async def test_a_worker_of_the_database_is_not_at_the_command_of_the_api(plane, conn):
    id = await conn.fetchval("insert into howdah.node (name, state) values ('local', 'busy') returning id")
    assert (await plane.get(f"/workers/{id}")).body["remote"] is False
    assert (await plane.ask("DELETE", f"/workers/{id}")).status == 404
    assert (await plane.ask("POST", f"/workers/{id}/drain")).status == 404
    assert await plane.status(id) == "busy"


async def test_a_path_that_holds_no_number_is_400(plane):
    for id in ("0", "-1", "x", "1e3", "2147483648", "99999999999999999999", "1%00", "%D9%A1"):
        response = await plane.get(f"/workers/{id}")
        assert (response.status, response.error["field"]) == (400, "id"), id


# ---------------------------------------------------------------- claim


async def test_nothing_to_claim_is_204(worker):
    response = await worker.tell("claim", {})
    assert (response.status, response.content) == (204, b"")
    assert "howdah-reason" not in response.headers


async def test_a_claim_takes_as_many_as_it_asks_for(plane, worker):
    ids = [await plane.enqueue(args={"i": i}) for i in range(5)]
    first = await worker.claim(3)
    assert [job["id"] for job in first] == ids[:3]
    assert [job["args"] for job in first] == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert {(job["kind"], job["queue"], job["attempt"], job["max_attempts"]) for job in first} == {
        ("noop", "default", 1, 5)
    }
    assert [job["id"] for job in await worker.claim(100)] == ids[3:]
    assert await worker.claim(1) == []


async def test_a_claim_says_all_that_was_enqueued(plane, worker):
    await plane.enqueue(key="k", timeout=7.5, meta={"who": "me"}, max_attempts=2, priority=3)
    job = await worker.one()
    assert (job["key"], job["timeout"], job["meta"], job["max_attempts"]) == ("k", 7.5, {"who": "me"}, 2)


WRONG_CLAIMS = [
    ({"max": 0}, "max"),
    ({"max": 1001}, "max"),
    ({"wait": 61}, "wait"),
    ({"wait": -1}, "wait"),
    ({"store": "nowhere"}, "store"),
    ({"room": {"default": -1}}, "room[...]"),
]


async def test_a_claim_that_cannot_be_is_refused(worker):
    for wrong, field in WRONG_CLAIMS:
        response = await worker.tell("claim", wrong)
        assert (response.status, response.error["field"]) == (400, field), wrong


async def test_room_limits_what_is_taken_of_each_queue(plane, worker):
    for queue in ("red", "red", "red", "blue", "blue"):
        await plane.enqueue(queue=queue)
    jobs = await worker.claim(10, room={"red": 1, "blue": 0})
    assert [job["queue"] for job in jobs] == ["red"]


async def test_only_kinds_and_queues_it_registered_for_are_taken(plane):
    await plane.enqueue("other")
    mine = await plane.enqueue(queue="red")
    await plane.enqueue(queue="blue")
    worker = await plane.worker(queues=["red"])
    assert [job["id"] for job in await worker.claim(10)] == [mine]


async def test_a_job_that_requires_labels_waits_for_a_worker_that_has_them(plane, worker):
    both = await plane.enqueue(requires=["gpu", "linux/arm64"])
    gpu = await plane.enqueue(requires=["gpu"])
    assert await worker.claim(10) == []
    only_gpu = await plane.worker(labels=["gpu"])
    assert [job["id"] for job in await only_gpu.claim(10)] == [gpu]
    has_both = await plane.worker(labels=["linux/arm64", "gpu", "big"], queues=["default"])
    [job] = await has_both.claim(10)
    assert (job["id"], job["queue"]) == (both, "default+gpu+linux/arm64")


async def test_a_long_poll_wakes_as_a_job_comes(plane, worker):
    took = []
    for _ in range(5):
        waiting = asyncio.create_task(worker.claim(1, wait=30))
        await asyncio.sleep(0.7)
        assert not waiting.done()
        began = time.monotonic()
        id = await plane.enqueue()
        [job] = await waiting
        took.append(time.monotonic() - began)
        assert job["id"] == id
        await worker.complete(job)
    assert min(took) < 0.5, took


async def test_a_long_poll_ends_with_204_when_nothing_comes(worker):
    began = time.monotonic()
    response = await worker.tell("claim", {"wait": 0.6})
    assert response.status == 204
    assert 0.5 < time.monotonic() - began < 20


async def test_many_that_wait_get_a_job_each(plane, worker):
    others = [await plane.worker() for _ in range(9)]
    waiting = [asyncio.create_task(each.claim(1, wait=30)) for each in [worker, *others]]
    await asyncio.sleep(0.3)
    ids = {await plane.enqueue() for _ in range(10)}
    found = [job for jobs in await asyncio.gather(*waiting) for job in jobs]
    assert {job["id"] for job in found} == ids
    assert len(found) == 10


async def knock(plane, worker, body: bytes) -> asyncio.StreamWriter:
    """Ask for a claim on a connection of one's own, and do not wait for the answer."""
    _, writer = await asyncio.open_connection("127.0.0.1", plane.port)
    writer.write(
        f"POST /workers/{worker.id}/claim HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {worker.credential}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    return writer


async def test_a_long_poll_whose_client_is_gone_claims_nothing(plane, worker, conn):
    writer = await knock(plane, worker, b'{"wait": 30}')
    await asyncio.sleep(0.5)
    writer.transport.abort()
    await asyncio.sleep(0.2)

    id = await plane.enqueue()
    await asyncio.sleep(0.3)
    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    other = await plane.worker()
    # the first attempt: nobody had it before
    assert [(job["id"], job["attempt"]) for job in await other.claim(1, wait=30)] == [(id, 1)]


@pytest.mark.parametrize("wait", [0, 5])
async def test_a_claim_that_is_cut_off_midway_is_handed_back(plane, worker, conn, wait):
    """Not when its lease runs out: at once."""
    id = await plane.enqueue()
    async with conn.transaction():
        await conn.execute("lock table howdah.lease in share mode")  # the claim waits here
        writer = await knock(plane, worker, b'{"wait": %d}' % wait)

        async def waits() -> bool:
            return bool(await conn.fetchval("select count(*) from pg_locks where not granted"))

        await eventually(waits)
        writer.transport.abort()
        await asyncio.sleep(0.3)
    other = await plane.worker()
    assert [(job["id"], job["attempt"]) for job in await other.claim(1, wait=30)] == [(id, 1)], "its lease ran out"
    assert await conn.fetchval("select count(*) from howdah.lease where node = $1", worker.id) == 0
