"""Rows that a transaction of the user's has locked, reported over HTTP: they are postponed, and hold up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, Worker, serving
from howdah import Howdah
from howdah.remote import messages as m
from howdah.remote.client import ControlPlaneClient, RejectedByServer
from howdah.remote.node import RemoteNode
from kit.node import eventually, quick
from kit.remote_node import remote
from table.ddl import ddl

pytestmark = pytest.mark.anyio


@pytest.fixture
async def locked(direct: Any) -> AsyncIterator[Any]:
    """Lock row 3 until told otherwise."""
    other = await direct.connect("user")
    transaction: Any = None

    class Locked:
        async def begin(self) -> None:
            nonlocal transaction
            transaction = other.transaction()
            await transaction.start()
            await other.execute("update uploads set n = n where id = 3")

        async def end(self) -> None:
            await transaction.commit()

    yield Locked()
    other.terminate()


@asynccontextmanager
async def uploads(app: Howdah, conn: Any, **options: Any) -> AsyncIterator[ControlPlane]:
    """A control plane for a table with five rows."""
    await conn.execute(ddl(extra="n int"))
    await conn.execute("insert into uploads (n) select generate_series(1, 5)")
    app.table("uploads", stalled_after=options.pop("stalled_after", 3600.0))
    async with serving(app, **{"offline_after": 60.0, **options}) as plane:
        yield plane


async def five(plane: ControlPlane) -> tuple[Worker, list[Any]]:
    """A worker that has claimed the five rows."""
    worker = await plane.worker(kinds=[], tables=["uploads"])
    rows = await worker.claim(5, store="uploads", wait=5)
    assert len(rows) == 5
    return worker, rows


def reports(rows: list[Any]) -> list[dict[str, Any]]:
    return [{"id": row["id"], "token": row["token"], "attempt": 1, "outcome": "ok"} for row in rows]


def ids(held: list[Any]) -> list[Any]:
    return sorted(each["id"] for each in held)


def completed(conn: Any, count: int) -> Any:
    return lambda: conn.fetchval("select count(*) = $1 from uploads where state = 'completed'", count)


async def test_the_answer_says_which_reports_are_postponed(app: Howdah, conn: Any, locked: Any) -> None:
    async with uploads(app, conn) as plane:
        worker, rows = await five(plane)
        await locked.begin()
        response = await worker.ack(*reports(rows), store="uploads", postpone=True)

        assert response.status == 200
        assert ids(response.body["accepted"]) == [1, 2, 4, 5]
        assert ids(response.body["postponed"]) == [3]
        kept = (await worker.beat(*rows[2:3], store="uploads")).body["fates"]["uploads"]["kept"]
        assert ids(kept) == [3], "it is still the worker's"
        await locked.end()
        response = await worker.ack(*reports(rows), store="uploads", postpone=True)
        assert ids(response.body["accepted"]) == [1, 2, 3, 4, 5]
        assert "postponed" not in response.body


async def test_a_worker_that_does_not_know_of_it_repeats_the_batch_and_loses_nothing(
    app: Howdah, conn: Any, locked: Any
) -> None:
    async with uploads(app, conn) as plane:
        worker, rows = await five(plane)
        await locked.begin()
        response = await worker.ack(*reports(rows), store="uploads")

        assert (response.status, response.error["code"], response.headers["Retry-After"]) == (503, "UNAVAILABLE", "1")
        assert await completed(conn, 4)(), "the others are recorded"
        await locked.end()
        response = await worker.ack(*reports(rows), store="uploads")
        assert ids(response.body["accepted"]) == [1, 2, 3, 4, 5]


async def test_a_short_lock_is_waited_for_where_the_worker_does_not_know_of_it(
    app: Howdah, conn: Any, locked: Any
) -> None:
    async with uploads(app, conn) as plane:
        worker, rows = await five(plane)
        await locked.begin()
        reporting = asyncio.create_task(worker.ack(*reports(rows), store="uploads"))
        await eventually(completed(conn, 4))
        await locked.end()
        response = await reporting
        if response.status == 503:  # on a slow machine
            response = await worker.ack(*reports(rows), store="uploads")
        assert ids(response.body["accepted"]) == [1, 2, 3, 4, 5]


async def test_a_locked_row_of_a_worker_that_leaves_goes_back_uncharged(app: Howdah, conn: Any, locked: Any) -> None:
    async with uploads(app, conn) as plane:
        worker, _ = await five(plane)
        await locked.begin()
        assert (await asyncio.wait_for(worker.leave(), 20)).status == 204
        states = dict(await conn.fetch("select id, state from uploads"))
        assert states == {1: "queued", 2: "queued", 3: "processing", 4: "queued", 5: "queued"}
        await locked.end()
        await eventually(lambda: conn.fetchval("select state = 'queued' from uploads where id = 3"))
    assert await conn.fetchval("select sum(num_resets + num_failures) from uploads") == 0


def uploader(begun: list[int], go: asyncio.Event) -> Howdah:
    app = Howdah()
    table = app.table("uploads", stalled_after=3.0, heartbeat=0.5)

    @table.handler
    async def upload(record: Any) -> None:
        begun.append(record["n"])
        await go.wait()

    return app


async def test_a_remote_worker_records_the_neighbours_and_later_the_locked_row(
    app: Howdah, conn: Any, locked: Any
) -> None:
    begun: list[int] = []
    go = asyncio.Event()

    async def all_begun() -> bool:
        return len(begun) == 5

    async with uploads(app, conn, stalled_after=3.0) as plane, remote(plane, uploader(begun, go), slots=10):
        await eventually(all_begun)
        await locked.begin()
        go.set()
        await eventually(completed(conn, 4))
        await conn.execute("insert into uploads (n) values (6)")
        await eventually(completed(conn, 5))
        await asyncio.sleep(5)  # longer than the stall time
        await locked.end()
        await eventually(completed(conn, 6))
    assert sorted(begun) == [1, 2, 3, 4, 5, 6], "each once"
    assert await conn.fetchval("select sum(num_resets + num_failures) from uploads") == 0


async def test_a_remote_worker_stops_while_a_row_is_locked(app: Howdah, conn: Any, locked: Any) -> None:
    begun: list[int] = []
    go = asyncio.Event()

    async def all_begun() -> bool:
        return len(begun) == 5

    async with uploads(app, conn) as plane:
        async with remote(plane, uploader(begun, go), slots=10, grace=1.0):
            await eventually(all_begun)
            await locked.begin()
            go.set()
            await eventually(completed(conn, 4))
        assert await conn.fetchval("select state from uploads where id = 3") == "processing"
        await locked.end()
        await eventually(lambda: conn.fetchval("select state = 'queued' from uploads where id = 3"))
    assert await conn.fetchval("select sum(num_resets + num_failures) from uploads") == 0


class Older(ControlPlaneClient):
    """Speaks with a control plane that knows nothing of ``postpone``."""

    refused = 0

    async def send(self, verb: str, message: Any, gives: Any, *, wait: float = 0.0) -> Any:
        if isinstance(message, m.AckRequest) and message.postpone:
            self.refused += 1
            raise RejectedByServer("INVALID: Object contains unknown field `postpone`", 400, "INVALID")
        return await super().send(verb, message, gives, wait=wait)


async def test_a_worker_of_an_older_control_plane_reports_as_before(app: Howdah, conn: Any) -> None:
    begun: list[int] = []
    go = asyncio.Event()
    go.set()
    clients: list[Older] = []

    async with uploads(app, conn) as plane:
        worker = await plane.worker(kinds=[], tables=["uploads"])
        response = await worker.ack(store="uploads", newer=True)
        assert "unknown field `newer`" in response.error["message"], "how a control plane answers what it does not know"

        def make() -> Older:
            clients.append(Older(plane.url, plane.tokens["work"]))
            return clients[-1]

        remote_node = RemoteNode(uploader(begun, go), quick(slots=1), make)
        running = asyncio.create_task(remote_node.run())
        await eventually(completed(conn, 5))
        remote_node.stop()
        await asyncio.wait_for(running, 60)
    assert sorted(begun) == [1, 2, 3, 4, 5]
    assert sum(client.refused for client in clients) == 1, "it asks once, not with every batch"
