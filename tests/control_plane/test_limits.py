"""Limits: whatever is sent, and however much of it, is refused before it hurts (S10)."""

from __future__ import annotations

import asyncio
import json
import resource
import time

import pytest

from howdah.control_plane.auth import MAX_OPEN_CLAIMS
from howdah.control_plane.rate_limit import MAX_CLIENTS, UnauthenticatedLimiter
from howdah.control_plane.tokens import make

pytestmark = pytest.mark.anyio

MB = 1024 * 1024


async def raw(plane, *pieces: bytes, pause: float = 0.0) -> tuple[int, bytes]:
    """Send bytes as they are; the status (0: it only hung up) and all that came back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
    except ConnectionError:
        pass  # it may hang up before it heard everything
    received = b""
    try:
        async with asyncio.timeout(10):
            while b"\r\n\r\n" not in received and (more := await reader.read(65536)):
                received += more
    except ConnectionError:
        pass
    finally:
        writer.close()
    return int(received.split(b" ", 2)[1]) if received else 0, received


def head(plane, path: str, *lines: str) -> bytes:
    token = plane.tokens["admin"]
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture
async def small(job_app, serve):
    async with serve(largest_body=100_000) as plane:
        yield plane


async def test_a_body_that_is_too_large_is_413(small, conn):
    response = await small.ask("POST", "/jobs", content=b" " * 100_001)
    assert (response.status, response.error["code"]) == (413, "TOO_LARGE")
    assert "100,000" in response.error["message"]
    assert (await small.ask("POST", "/jobs", {"kind": "noop", "meta": {"x": "y" * 99_000}})).status == 201
    assert await conn.fetchval("select count(*) from howdah.job") == 1


async def test_a_body_that_only_says_it_is_large_is_not_even_read(small):
    began = time.monotonic()
    status, _ = await raw(small, head(small, "/jobs", "Content-Length: 99999999999"))
    assert status == 413
    assert time.monotonic() - began < 2


async def test_a_chunked_body_is_measured_as_it_comes(small):
    pieces = [chunk(b" " * 10_000)] * 11  # it hangs up on who goes on
    status, _ = await raw(small, head(small, "/jobs", "Transfer-Encoding: chunked"), *pieces)
    assert status == 413
    good = chunk(b'{"kind":') + chunk(b'"noop"}') + b"0\r\n\r\n"
    status, _ = await raw(small, head(small, "/jobs", "Transfer-Encoding: chunked"), good)
    assert status == 201


async def test_two_ideas_of_how_long_a_body_is_are_refused(small):
    """What a proxy reads as one request must not be two for us."""
    both = head(small, "/jobs", "Content-Length: 4", "Transfer-Encoding: chunked")
    status, answer = await raw(small, both, b"0\r\n\r\nGET /workers HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert status == 400
    for lines in (("Content-Length: 2", "Content-Length: 3"), ("Content-Length: -1",), ("Content-Length: +2",)):
        status, _ = await raw(small, head(small, "/jobs", *lines), b"{}")
        assert status == 400, lines


async def test_endless_headers_are_refused(small):
    status, _ = await raw(small, b"GET /health HTTP/1.1\r\nHost: x\r\n", *[b"X-A: " + b"a" * 10_000 + b"\r\n"] * 30)
    assert status in (0, 400, 431)
    assert (await small.get("/health")).status == 200


async def test_json_that_is_too_deep_is_400_and_nothing_breaks(plane, worker):
    for depth in (101, 500, 900, 1100, 10_000, 100_000):
        deep = b"[" * depth + b"]" * depth
        for content in (
            b'{"kind": "strange", "args": {"a": %s}}' % deep,
            b'{"kind": "noop", "meta": {"a": %s}}' % deep,
            deep,
            b'{"kind": %s}' % deep,
            b'{"kind": "noop", "unknown": %s}' % deep,
        ):
            response = await plane.ask("POST", "/jobs", content=content)
            assert (response.status, response.error["code"]) == (400, "INVALID"), depth
    assert (await plane.get("/health")).status == 200

    id = await plane.enqueue("noop")
    job = await worker.one()
    deep = b"[" * 101 + b"]" * 101
    content = b'{"token": %d, "result": %s}' % (job["token"], deep)
    response = await plane.ask("POST", f"/workers/{worker.id}/complete/{id}", content=content, token=worker.credential)
    assert (response.status, response.error["field"]) == (400, "result")


async def test_json_as_deep_as_allowed_goes_all_the_way(plane):
    nested: object = []
    for _ in range(97):
        nested = [nested]
    worker = await plane.worker(kinds=["strange"])
    id = await plane.enqueue("strange", {"a": nested, "b": '[[[{{{\\"[[['})
    job = await worker.one()
    assert job["args"]["a"] == nested
    assert (await worker.complete(job, result=nested)).status == 200
    assert (await plane.job(id))["result"] == nested


async def test_what_is_kept_is_bounded(plane, worker):
    id = await plane.enqueue()
    job = await worker.one()
    response = await worker.complete(job, result="x" * (MB + 1))
    assert (response.status, response.error["field"]) == (413, "result")
    response = await plane.ask("POST", "/jobs", {"kind": "strange", "args": {"a": "x" * MB}})
    assert (response.status, response.error["field"]) == (413, "args")
    response = await worker.fail(job, message="x" * 10_001)
    assert (response.status, response.error["field"]) == (400, "message")
    assert (await plane.job(id))["state"] == "running"


async def test_many_fields_and_long_lists_are_refused_quickly(plane, worker):
    began = time.monotonic()
    many = {f"f{i}": i for i in range(200_000)}
    assert (await plane.ask("POST", "/jobs", {"kind": "noop", **many})).status == 400
    assert (await worker.tell("claim", {"room": {f"q{i}": 1 for i in range(1001)}})).status == 400
    held = [{"id": i, "token": i} for i in range(1, 10_002)]
    assert (await worker.tell("heartbeat", {"held": {"jobs": held}})).status == 400
    assert (await worker.tell("release", {"tokens": list(range(1, 10_002))})).status == 400
    acks = [{"id": 1, "token": 1, "attempt": 1, "outcome": "ok"}] * 2001
    assert (await worker.ack(*acks)).status == 400
    assert (await plane.ask("POST", "/workers/register", {"hostname": "w", "kinds": ["k"] * 1001})).status == 400
    assert time.monotonic() - began < 10


async def test_numbers_that_fit_nowhere_are_400(plane, worker):
    for number in ("1e400", "-1e400", "9" * 400, "9223372036854775808", "-1", "0", "1.5", "true", "null", '"1"'):
        content = b'{"token": %s}' % number.encode()
        response = await plane.ask("POST", f"/workers/{worker.id}/complete/1", content=content, token=worker.credential)
        assert (response.status, response.error["code"]) == (400, "INVALID"), number
    for field, number in (("delay", "1e400"), ("timeout", "1e10"), ("priority", "9" * 400), ("delay", "NaN")):
        response = await plane.ask("POST", "/jobs", content=f'{{"kind": "noop", "{field}": {number}}}'.encode())
        assert response.status == 400, (field, number)


async def test_text_that_is_none_is_400(plane, worker, conn):
    """Half a surrogate pair, NUL and bytes that are no UTF-8, wherever text can stand."""
    for bad in (b'"\\ud800"', b'"\\udc00x"', b'"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"'):
        for content in (
            b'{"kind": %s}' % bad,
            b'{"kind": "noop", "queue": %s}' % bad,
            b'{"kind": "noop", "key": %s}' % bad,
            b'{"kind": "strange", "args": {"a": %s}}' % bad,
            b'{"kind": "strange", "args": {%s: 1}}' % bad,
            b'{"kind": "noop", "meta": {"a": %s}}' % bad,
        ):
            response = await plane.ask("POST", "/jobs", content=content)
            assert (response.status, response.error["code"]) == (400, "INVALID"), content
        response = await plane.ask("POST", "/workers/register", content=b'{"hostname": %s}' % bad)
        assert response.status == 400
    assert await conn.fetchval("select count(*) from howdah.job") == 0

    await plane.enqueue("strange", {"a": "\\u0000 \\ud800 written out is only text", "b": "😀"})
    strange = await plane.worker(kinds=["strange"])
    assert (await strange.one())["args"]["b"] == "😀"

    id = await plane.enqueue()
    job = await worker.one()
    for bad in (b'"\\ud800"', b'"\\u0000"', b'"\xff"'):
        content = b'{"token": %d, "result": %s}' % (job["token"], bad)
        response = await plane.ask(
            "POST", f"/workers/{worker.id}/complete/{id}", content=content, token=worker.credential
        )
        assert response.status == 400, bad
    response = await worker.fail(job, error="\x00", message="a\x00b", traceback="\x00", retry=False)
    assert response.status == 200
    assert (await plane.job(id))["error"] == "\\0: a\\0b"


async def test_too_many_requests_of_one_token_are_429_and_others_are_served(job_app, serve):
    async with serve(rate=5) as plane:
        responses = [await plane.get("/workers", token=plane.tokens["read"]) for _ in range(15)]
        statuses = [each.status for each in responses]
        assert statuses[:10] == [200] * 10
        assert 429 in statuses
        late = next(each for each in responses if each.status == 429)
        assert late.error["code"] == "TOO_MANY_REQUESTS"
        assert int(late.headers["retry-after"]) >= 1
        assert (await plane.get("/workers")).status == 200  # of another token
        await asyncio.sleep(int(late.headers["retry-after"]))
        assert (await plane.get("/workers", token=plane.tokens["read"])).status == 200

        worker = await plane.worker()
        assert 429 in [(await worker.beat()).status for _ in range(15)]
        other = await plane.worker()
        assert (await other.beat()).status == 200


async def test_one_worker_cannot_wait_in_every_seat(plane, worker):
    waiting = [asyncio.create_task(worker.tell("claim", {"wait": 3})) for _ in range(MAX_OPEN_CLAIMS + 20)]
    result = await asyncio.gather(*waiting)
    statuses = [each.status for each in result]
    assert statuses.count(204) == MAX_OPEN_CLAIMS
    assert statuses.count(429) == 20
    assert next(each for each in result if each.status == 429).headers["retry-after"] == "1"
    assert (await worker.tell("claim", {})).status == 204


async def test_connections_beyond_the_limit_are_503(job_app, serve):
    async with serve(connections=10) as plane:
        idle = [await asyncio.open_connection("127.0.0.1", plane.port) for _ in range(12)]
        await asyncio.sleep(0.1)
        status, _ = await raw(plane, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status == 503
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.3)
        assert (await plane.get("/health")).status == 200


async def test_memory_stays_bounded_under_refused_bodies(job_app, serve):
    async with serve(largest_body=MB) as plane:
        content = json.dumps({"kind": "noop", "meta": {"x": "y" * (2 * MB)}}).encode()
        for _ in range(20):
            await plane.ask("POST", "/jobs", content=content)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(10):
            result = await asyncio.gather(*(plane.ask("POST", "/jobs", content=content) for _ in range(20)))
            assert {each.status for each in result} == {413}
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024  # of 400 MB that were sent


HOSTILE = ['we"ird; drop table howdah.job --', "'; select 1; --", "{schema}", "$1", "%s", "a\\b", "é" * 50, "{}"]


async def test_hostile_names_are_only_names(plane, conn):
    """S2: as kind, queue, key, host and label; they come back as they were, and every table is where it was."""
    tables = "select count(*) from pg_class where relnamespace = 'howdah'::regnamespace and not relispartition"
    before = await conn.fetchval(tables)
    for name in HOSTILE:
        worker = await plane.worker(hostname=name, kinds=[name], queues=[name], labels=[name[:20]], version=name)
        id = await plane.enqueue(name, queue=name, key=name, requires=[name[:20]], meta={name: name})
        job = await worker.one(room={name: 5})
        assert (job["id"], job["kind"], job["key"]) == (id, name, name)
        await worker.tell(f"log/{id}", {"token": job["token"], "lines": [name], "note": name, "progress": 0})
        assert (await worker.fail(job, error=name, message=name, hold=0.01, retry_after=0)).status == 200
        assert (await plane.get(f"/workers/{worker.id}")).body["name"] == name
        assert (await plane.get("/workers", params={"status": name})).status == 400
        assert (await plane.get(f"/jobs/{id}/log", params={"after": name})).status == 400
    assert before == await conn.fetchval(tables)


STRANGE = {
    "nothing": lambda plane: None,
    "nonsense": lambda plane: "nonsense",
    "an unknown token": lambda plane: make(),
}


@pytest.mark.parametrize("bearer", STRANGE)
async def test_requests_without_a_good_token_are_429_after_a_while(job_app, serve, bearer):
    async with serve(refusals=5) as plane:
        responses = [await plane.get("/workers", token=STRANGE[bearer](plane)) for _ in range(8)]

        assert {each.status for each in responses[:5]} == {401}
        assert responses[7].status == 429
        assert responses[7].error["code"] == "TOO_MANY_REQUESTS"
        assert 1 <= int(responses[7].headers["retry-after"]) <= 12


async def test_a_worker_that_is_not_known_hears_it_however_many_there_are(job_app, serve):
    """Else a fleet behind one address would never register again, after a database was restored."""
    async with serve(refusals=5) as plane:
        worker = await plane.worker()
        strange = [
            await plane.ask("POST", f"/workers/{id}/heartbeat", {}, token=make("node"))
            for _ in range(5)
            for id in (worker.id, worker.id + 1)
        ]
        assert [each.status for each in strange] == [401, 404] * 5


async def test_strangers_do_not_lock_out_those_behind_the_same_address(job_app, serve):
    async with serve(refusals=5) as plane:
        worker = await plane.worker()
        for _ in range(10):
            late = await plane.get("/workers", token=make())
        assert late.status == 429

        assert (await plane.get("/workers")).status == 200, "seen before"
        assert (await worker.beat()).status == 200
        assert (await plane.get("/workers", token=plane.tokens["read"])).status == 200, "never seen before"
        assert (await plane.worker(token=plane.tokens["work"])).id != worker.id


async def test_nobody_is_believed_to_come_from_elsewhere(job_app, serve):
    async with serve(refusals=5) as plane:
        responses = [
            await plane.get(
                "/workers", token=None, headers={"X-Forwarded-For": f"192.0.2.{n}", "Forwarded": f"for=192.0.2.{n}"}
            )
            for n in range(8)
        ]
        assert responses[7].status == 429


def test_addresses_are_forgotten_before_they_are_too_many():
    limiter = UnauthenticatedLimiter(1)
    for n in range(MAX_CLIENTS + 100):
        limiter.count_failure(f"host {n}")

    assert len(limiter._limiter._buckets) == MAX_CLIENTS
    assert limiter.count_failure(f"host {MAX_CLIENTS}") > 0
    assert limiter.count_failure("2001:db8::1") == 0
    assert limiter.count_failure("2001:db8::2") > 0, "of one network"
