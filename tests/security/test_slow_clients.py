"""Clients that send nothing, half of a request, or one byte at a time shut nobody else out."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import Howdah
from howdah.control_plane import connections
from howdah.control_plane.connections import MAX_LINGERING, RESERVED_DESCRIPTORS, ConnectionLimits
from kit.serve_process import ControlPlaneProcess

pytestmark = pytest.mark.anyio
HEAD = b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
INCOMPLETE = {
    "nothing": b"",
    "half of the headers": HEAD[:30],
    "half of a body": HEAD.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer %s\r\n\r\n{"),
    "half of a body without a token": HEAD + b"{",
}


@pytest.fixture
async def plane(app: Howdah, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlane]:
    """A control plane with short deadlines."""
    monkeypatch.setattr(connections, "HEADER_TIMEOUT", 0.5)
    monkeypatch.setattr(connections, "BODY_TIMEOUT", 0.5)

    @app.task
    async def noop() -> None: ...

    async with serving(app, connections=100, connections_per_address=90) as plane:
        yield plane


@asynccontextmanager
async def clients(plane: ControlPlane, number: int, sends: bytes) -> AsyncIterator[list[tuple[Any, Any]]]:
    """Connect so often, and send this each time."""
    made = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", plane.port)
        writer.write(sends)
        made.append((reader, writer))
    try:
        yield made
    finally:
        for _, writer in made:
            writer.close()


@pytest.mark.parametrize("sends", INCOMPLETE.values(), ids=INCOMPLETE.keys())
async def test_an_incomplete_request_is_closed_after_its_deadline(plane: ControlPlane, sends: bytes) -> None:
    async with clients(plane, 60, sends.replace(b"%s", plane.tokens["enqueue"].encode())) as slow:
        assert (await plane.get("/health")).status == 200
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*(reader.read() for reader, _ in slow))

    if sends and not sends.startswith(HEAD):  # the last one was answered with 401 before
        assert {each.split(b"\r\n")[0] for each in answers} == {b"HTTP/1.1 408 Request Timeout"}
    assert (await plane.get("/health")).status == 200


async def test_bytes_one_by_one_do_not_extend_the_deadline(plane: ControlPlane) -> None:
    began = time.monotonic()
    async with clients(plane, 1, b"GET /health HTTP/1.1\r\n") as [(reader, writer)]:
        while not reader.at_eof() and time.monotonic() < began + 10:
            writer.write(b"X")
            try:
                async with asyncio.timeout(0.1):
                    await reader.read(1000)
            except (TimeoutError, ConnectionError):
                continue

    assert 0.4 < time.monotonic() - began < 8


async def test_the_second_request_of_a_connection_has_a_deadline_too(plane: ControlPlane) -> None:
    whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    async with clients(plane, 1, whole) as [(reader, writer)]:
        await reader.readuntil(b"alive\n")
        await asyncio.sleep(1)  # longer than a deadline: a connection without a request may wait
        writer.write(whole)
        await reader.readuntil(b"alive\n")
        writer.write(whole[:20])
        async with asyncio.timeout(10):
            rest = await reader.read()

    assert rest.startswith(b"HTTP/1.1 408")


async def test_a_steady_body_may_take_longer_than_the_deadline(plane: ControlPlane) -> None:
    """The control: a slow line is no slow client."""
    body = b'{"kind": "noop", "meta": {"x": "' + b"y" * 60_000 + b'"}}'
    head = (
        f"POST /jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {plane.tokens['enqueue']}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    async with clients(plane, 1, head.encode()) as [(reader, writer)]:
        for start in range(0, len(body), 6000):
            writer.write(body[start : start + 6000])
            await asyncio.sleep(0.15)
        answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 201"), answer


async def test_a_long_poll_outlives_the_deadlines(plane: ControlPlane) -> None:
    worker = await plane.worker()
    waiting = asyncio.create_task(worker.claim(wait=10))
    await asyncio.sleep(1.5)
    await plane.enqueue()

    assert len(await waiting) == 1


async def test_one_address_cannot_take_all_connections(app: Howdah) -> None:
    async with serving(app, connections=40) as plane:
        async with clients(plane, 30, b"") as idle:
            refused = await asyncio.wait_for(idle[-1][0].read(), 10)
            assert refused.startswith(b"HTTP/1.1 503")
            assert await asyncio.to_thread(_status, plane.url) in (0, 503)
            from_elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
            async with httpx.AsyncClient(transport=from_elsewhere, trust_env=False) as other:
                assert (await other.get(f"{plane.url}/health")).status_code == 200
        async with asyncio.timeout(10):
            while (await asyncio.to_thread(_status, plane.url)) != 200:
                await asyncio.sleep(0.05)


def _status(url: str) -> int:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).status_code
    except httpx.HTTPError:
        return 0


def test_connections_are_counted_in_all_and_by_address() -> None:
    limits = ConnectionLimits(5, 2)

    assert [limits.admit(each) for each in "aaabbbcc"] == [True, True, False, True, True, False, True, False]
    assert [limits.may_linger() for _ in range(MAX_LINGERING + 1)] == [True] * MAX_LINGERING + [False]
    limits.end_linger()
    assert limits.may_linger()
    limits.release("a")
    assert limits.admit("a")
    assert not limits.admit("d")


def test_idle_connections_do_not_use_up_the_file_descriptors(direct: Any, tmp_path: Any) -> None:
    """With 300 descriptors, 330 idle connections stopped all service."""
    with ControlPlaneProcess("--auth", "none", dsn=direct.dsn, folder=tmp_path) as plane:
        resource.prlimit(plane.process.pid, resource.RLIMIT_NOFILE, (300, 300))  # before it has imported anything
        port = plane.port
        plane.says(f"only {300 - RESERVED_DESCRIPTORS} connections are accepted")
        idle = []
        try:
            for _ in range(330):
                idle.append(socket.create_connection(("127.0.0.1", port), 5))  # noqa: PERF401 - closed if one fails
            until = time.monotonic() + 20
            while not (answered := _health(port)) and time.monotonic() < until:
                time.sleep(0.2)
            assert answered
            plane.says("connections were rejected")
        finally:
            for each in idle:
                each.close()


def _health(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5, source_address=("127.0.0.2", 0)) as conn:
            conn.settimeout(5)
            conn.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return b"alive" in conn.recv(10_000) + conn.recv(10_000)
    except OSError:
        return False


def test_too_few_descriptors_are_refused_at_the_start() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from howdah.control_plane.connections import allowed_connections\n"
        "from howdah.control_plane.options import ServeOptions\n"
        "allowed_connections(ServeOptions())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "the limit of open files is 100, too low for a server" in done.stderr


def test_the_soft_limit_is_raised_as_far_as_needed() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    program = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))\n"
        "from howdah.control_plane.connections import allowed_connections\n"
        "from howdah.control_plane.options import ServeOptions\n"
        "print(allowed_connections(ServeOptions(connections=500)), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    if hard != resource.RLIM_INFINITY and hard < 500 + RESERVED_DESCRIPTORS:
        pytest.skip("the hard limit is too low")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["500", str(500 + RESERVED_DESCRIPTORS)]
