"""What a worker without a database is asked, how it ends, and how it behaves towards its control plane."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import ConfigError, Howdah, WorkerOptions
from howdah.postgres.database import Database
from howdah.remote import messages as m
from howdah.remote.client import MIN_INTERVAL, ControlPlaneClient, RequestPacer
from howdah.remote.node import RemoteNode
from howdah.remote.store import RemoteStore
from kit import remote_app
from kit.lock_waits import claims_held_up
from kit.node import ended, eventually, quick, state
from kit.remote_node import JOB, registered, remote, runs

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(app: Howdah) -> AsyncIterator[ControlPlane]:
    """A control plane that knows no task at all."""
    async with serving(app) as plane:
        yield plane


async def test_a_running_job_is_cancelled_by_the_next_heartbeat(served: ControlPlane, conn: Any) -> None:
    id = await served.enqueue("nap", {"seconds": 60})

    async with remote(served) as remote_node:
        await runs(remote_node)
        assert (await served.ask("POST", f"/jobs/{id}/cancel")).body["result"] == "asked"
        row = await ended(conn, id)
        assert (row["state"], row["error"]) == ("cancelled", "Cancelled: cancelled while running")


async def test_a_worker_that_is_asked_to_drain_takes_no_more_and_ends(app: Howdah, conn: Any) -> None:
    async with serving(app, heartbeat=90.0, offline_after=300.0) as plane:
        remote_node = RemoteNode(remote_app.app, quick(), lambda: ControlPlaneClient(plane.url, plane.tokens["work"]))
        running = asyncio.create_task(remote_node.run())
        id = await plane.enqueue("nap", {"seconds": 1.5})
        await runs(remote_node)
        await asyncio.sleep(0.3)  # it waits for more by now
        assert (await plane.ask("POST", f"/workers/{remote_node.node}/drain")).body["status"] == "draining"
        later = await plane.enqueue("traced")
        # the next heartbeat is a minute and a half away
        await asyncio.wait_for(running, 30)

        assert await state(conn, id) == "done"
        assert await state(conn, later) == "queued"
        assert await plane.status(remote_node.node) == "offline"


async def test_a_claim_answered_after_the_stop_starts_nothing(
    served: ControlPlane, conn: Any, direct: Database
) -> None:
    id = await served.enqueue("traced")
    remote_node = RemoteNode(remote_app.app, quick(), lambda: ControlPlaneClient(served.url, served.tokens["work"]))
    async with claims_held_up(direct) as one_waits:
        running = asyncio.create_task(remote_node.run())
        await one_waits()
        remote_node.stop()
    await asyncio.wait_for(running, 60)

    row = await conn.fetchrow(JOB, id)
    assert (row["state"], row["attempt"], row["resets"]) == ("queued", 0, 0)
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


@pytest.mark.parametrize("forgotten", [False, True], ids=["removed", "its row is gone"])
async def test_a_worker_nobody_knows_any_more_registers_again(served: ControlPlane, conn: Any, forgotten: bool) -> None:
    lost = await served.enqueue("nap", {"seconds": 60})

    async with remote(served, grace=0.0) as remote_node:
        await runs(remote_node)
        first = remote_node.node
        if forgotten:  # as after a failover to a standby that had not heard of it
            await conn.execute("delete from howdah.node where id = $1", first)
        else:
            assert (await served.ask("DELETE", f"/workers/{first}")).status == 204

        async def again() -> bool:
            return remote_node.node != first and len(remote_node.running) == 1

        await eventually(again)
        other = await served.enqueue("traced")
        row = await ended(conn, other)
        assert row["node"] == remote_node.node
        assert await state(conn, lost) == "running"
        assert (await conn.fetchrow(JOB, lost))["node"] == remote_node.node


async def test_nothing_is_left_behind_at_the_end(served: ControlPlane, conn: Any) -> None:
    before = asyncio.all_tasks()
    async with remote(served) as remote_node:
        node = await registered(remote_node)
        await ended(conn, await served.enqueue("traced"))
        heartbeat_client = remote_node.heartbeat_thread.connection
    assert heartbeat_client is not None

    async def gone() -> bool:
        tasks = {task for task in asyncio.all_tasks() - before if (task.get_name() or "").startswith("howdah ")}
        return not {task for task in tasks if task.get_name() != "howdah line"}

    await eventually(gone)
    assert "howdah-heart" not in [thread.name for thread in threading.enumerate()]
    assert heartbeat_client._http.is_closed
    assert remote_node.client._http.is_closed
    assert await served.status(node) == "offline"


async def test_what_was_claimed_and_never_heard_of_goes_back_at_the_goodbye(served: ControlPlane, conn: Any) -> None:
    id = await served.enqueue("traced")
    worker = await served.worker(kinds=["traced"])
    assert await worker.claim(), "its answer is lost, say"

    assert (await worker.leave()).status == 204
    row = await conn.fetchrow(JOB, id)
    assert (row["state"], row["attempt"], row["resets"]) == ("queued", 0, 0)


class Member:
    """A worker that registered, and nothing more."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self.client = client

    async def register_again(self, stale: int) -> None: ...

    def asked_to_drain(self) -> None: ...


async def test_what_came_while_waiting_and_nobody_took_goes_back(served: ControlPlane, conn: Any) -> None:
    client = ControlPlaneClient(served.url, served.tokens["work"])
    await client.register(m.RegisterRequest(hostname="n", kinds=["traced"]))
    store = RemoteStore(Member(client))
    id = await served.enqueue("traced")
    await store.rest()
    assert await state(conn, id) == "running"

    async def back() -> bool:
        return await state(conn, id) == "queued"

    async def forgotten() -> bool:
        return store.held() == []

    await eventually(back)
    assert (await conn.fetchrow(JOB, id))["attempt"] == 0
    await eventually(forgotten)

    again = await served.enqueue("traced")
    await store.rest()
    await store.close()
    assert await state(conn, again) == await state(conn, id) == "queued"
    await client.close()


async def test_a_control_plane_that_lets_nobody_wait_is_not_pestered() -> None:
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            words = head.decode().lower()
            length = int(words.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            await reader.readexactly(length)
            path = words.split()[1]
            asked.append(path)
            if path.endswith("register"):
                body = b'{"id": 1, "credential": "c", "heartbeat": 30, "lease": 90}'
                writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            else:
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
        writer.close()

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(quietly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        remote_node = RemoteNode(
            remote_app.app, WorkerOptions(poll=1.0), lambda: ControlPlaneClient(f"http://127.0.0.1:{port}", None)
        )
        began = time.monotonic()
        running = asyncio.create_task(remote_node.run())

        async def thrice() -> bool:
            return len([path for path in asked if path.endswith("/claim")]) >= 3

        await asyncio.sleep(3.0)
        await eventually(thrice)
        remote_node.stop()
        await asyncio.wait_for(running, 30)

    claims = len([path for path in asked if path.endswith("/claim")])
    assert claims <= 14 * (time.monotonic() - began) / 3, asked
    assert asked[-1] == "/workers/1"


async def test_it_asks_for_leave_to_wait_and_no_more_often(served: ControlPlane, conn: Any) -> None:
    asked: list[str] = []

    class Noted(ControlPlaneClient):
        async def send(self, verb: str, *args: Any, **more: Any) -> Any:
            asked.append(verb)
            return await super().send(verb, *args, **more)

    remote_node = RemoteNode(remote_app.app, quick(), lambda: Noted(served.url, served.tokens["work"]))
    running = asyncio.create_task(remote_node.run())
    await registered(remote_node)

    async def beats() -> bool:
        return asked.count("heartbeat") > 2 and asked.count("claim") >= 2

    await eventually(beats)
    await asyncio.sleep(1.0)
    remote_node.stop()
    await asyncio.wait_for(running, 60)

    assert asked.count("claim") == 2, "one look, and one that waits"


async def test_turns_do_not_come_too_fast_and_a_single_one_never_waits() -> None:
    pacer, loop = RequestPacer(), asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(StopIteration) as caught:  # that is: it did not wait
        pacer.acquire().send(None)
    assert caught.value.value

    for _ in range(10):
        assert await pacer.acquire()
    assert loop.time() - began >= 10 * MIN_INTERVAL * 0.9
    cancelled = asyncio.Event()
    cancelled.set()
    assert not await pacer.acquire(cancelled), "there is no need any more"
    await asyncio.sleep(2 * MIN_INTERVAL)
    assert await pacer.acquire(cancelled), "there was nothing to wait for"


async def test_requests_stay_within_what_a_worker_is_allowed(
    app: Howdah, conn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Howdah()

    @worker.task
    async def short() -> None: ...

    @app.task(name="short")
    async def same() -> None: ...

    await app.enqueue_many(same.job() for _ in range(5000))
    async with serving(app, rate=100) as plane, remote(plane, worker, slots=50):

        async def all_done() -> bool:
            return await conn.fetchval("select count(*) from howdah.done") == 5000

        await eventually(all_done, 60)
    assert "TOO_MANY_REQUESTS" not in caplog.text


@pytest.mark.parametrize(
    ("url", "token", "message"),
    [
        ("{url}", "hwd_api_wrong", "UNAUTHORIZED"),
        ("{url}/elsewhere", "{token}", "NOT_FOUND"),
        ("{url}", "{read}", "FORBIDDEN"),
    ],
)
async def test_a_worker_that_is_refused_says_so_and_ends(
    served: ControlPlane, url: str, token: str, message: str
) -> None:
    known = {"url": served.url, "token": served.tokens["work"], "read": served.tokens["read"]}
    remote_node = RemoteNode(
        remote_app.app, WorkerOptions(), lambda: ControlPlaneClient(url.format(**known), token.format(**known))
    )
    with pytest.raises(ConfigError, match=message):
        await remote_node.run()
    assert remote_node.client._http.is_closed


@pytest.mark.parametrize(
    "url", ["ftp://here", "localhost:8080", "http://", "http://me:secret@here", "http://h?x=1", "http://h:x"]
)
def test_a_url_that_cannot_be_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="the server is a URL such as") as raised:
        ControlPlaneClient(url, None)
    assert "secret" not in str(raised.value)


async def test_no_secret_is_logged_at_any_level(served: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with remote(served) as remote_node:
        await registered(remote_node)
    assert remote_node.registry.registered is not None
    assert remote_node.registry.registered.credential not in caplog.text
    assert served.tokens["work"] not in caplog.text
