"""A worker without a database does what one with a database does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import ConfigError, Howdah, WorkerOptions
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from kit import remote_app
from kit.node import ended, eventually, state
from kit.remote_node import JOB, remote, result

pytestmark = pytest.mark.anyio

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def served(app: Howdah) -> AsyncIterator[ControlPlane]:
    """A control plane that knows no task at all."""
    async with serving(app) as plane:
        yield plane


async def test_arguments_arrive_in_their_types_and_results_are_kept(served: ControlPlane, conn: Any) -> None:
    args = {"parcel": {"to": "Kyoto", "at": "2031-05-04T10:00:00Z"}, "copies": 2}
    sent = await served.enqueue("send", args)
    bad = await served.enqueue("send", {"parcel": 7}, max_attempts=1)

    async with remote(served):
        assert await result(conn, sent) == {"type": "Parcel", "year": 2031, "to": "Kyoto", "copies": 2}
        assert (await ended(conn, bad))["error"].startswith("Poison: task 'send' cannot be called with these arguments")


async def test_every_outcome_is_recorded_as_by_a_worker_with_a_database(served: ControlPlane, conn: Any) -> None:
    kinds = ("wait_a_little", "not_needed", "spoiled", "third_time", "too_slow")
    ids = {kind: await served.enqueue(kind, max_attempts=3) for kind in kinds}
    await conn.execute("update howdah.job set max_attempts = 1, timeout = 0.2 where id = $1", ids["too_slow"])

    async with remote(served):
        rows = {kind: await ended(conn, id) for kind, id in ids.items()}

    assert {kind: (row["state"], row["attempt"]) for kind, row in rows.items()} == {
        "wait_a_little": ("done", 1),
        "not_needed": ("cancelled", 1),
        "spoiled": ("failed", 1),
        "third_time": ("done", 3),
        "too_slow": ("failed", 1),
    }
    assert rows["spoiled"]["error"] == "Poison: it is spoiled"
    assert "longer than its timeout" in rows["too_slow"]["error"]
    failures = await conn.fetch(
        "select attempt, message from howdah.attempt where id = $1 order by 1", ids["third_time"]
    )
    assert [tuple(row) for row in failures] == [(1, "attempt 1 fails"), (2, "attempt 2 fails")]


async def test_threads_and_processes_run_handlers(served: ControlPlane, conn: Any) -> None:
    thread, process = await served.enqueue("in_thread"), await served.enqueue("in_process")

    async with remote(served):
        assert (await result(conn, thread)).startswith("howdah-job")
        assert await result(conn, process) not in (None, os.getpid())


async def test_a_trace_goes_on_in_the_handler(served: ControlPlane, conn: Any) -> None:
    id = await conn.fetchval("select id from howdah.enqueue('traced', '{}')")
    await conn.execute("update howdah.job set trace = $2 where id = $1", id, TRACE)

    async with remote(served):
        assert await result(conn, id) == TRACE


async def test_what_needs_the_database_is_left_alone_with_a_warning(
    served: ControlPlane, conn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    booked, other = await served.enqueue("book"), await served.enqueue("traced")

    async with remote(served):
        await ended(conn, other)
    assert await state(conn, booked) == "queued"
    assert "book is not run here, since it needs a node with the database: it is transactional" in caplog.text

    only = Howdah()
    only.task(transactional=True, name="b")(remote_app.book.handler.function)
    with pytest.raises(ConfigError, match="no task or table that can be run without a database"):
        RemoteNode(only, WorkerOptions(), lambda: ControlPlaneClient(served.url, None))


async def test_a_result_that_does_not_fit_costs_no_second_run(app: Howdah, conn: Any) -> None:
    worker, runs = Howdah(), []

    @worker.task
    async def big(size: int) -> str:
        runs.append(size)
        return "x" * size

    async with serving(app, largest_body=3000) as plane:
        ids = [await plane.enqueue("big", {"size": size}) for size in (10, 5000, 20, 900, 900, 900, 900)]
        async with remote(plane, worker):
            rows = [await ended(conn, id) for id in ids]

    assert {row["state"] for row in rows} == {"done"}
    assert [len(row["result"] or "") for row in rows] == [12, 0, 22, 902, 902, 902, 902]
    assert rows[1]["error"] == "ResultNotStored: not kept: TOO_LARGE: a request may have 3,000 bytes"
    assert sorted(runs) == [10, 20, 900, 900, 900, 900, 5000]


async def test_labels_and_queues_say_what_a_worker_gets(served: ControlPlane, conn: Any) -> None:
    rendered = await served.enqueue("render", requires=["gpu"], queue="film")
    plain = await served.enqueue("traced", queue="film")
    elsewhere = await served.enqueue("traced", queue="mail")

    async with remote(served, queues={"film": None}):
        await ended(conn, plain)
        await asyncio.sleep(0.3)
        assert await state(conn, rendered) == "queued"
    async with remote(served, queues={"film": None}, labels=["gpu", "linux/arm64"]):
        assert await result(conn, rendered) == "rendered"
    assert await state(conn, elsewhere) == "queued"


async def test_the_limit_of_a_queue_is_kept(served: ControlPlane, conn: Any) -> None:
    ids = [await served.enqueue("nap", {"seconds": 60}, queue="film") for _ in range(4)]

    async with remote(served, queues={"film": 2}, grace=0.0) as remote_node:

        async def two_run() -> bool:
            return len(remote_node.running) == 2

        await eventually(two_run)
        await asyncio.sleep(0.5)
        assert sorted([await state(conn, id) for id in ids]) == ["queued", "queued", "running", "running"]
    assert [(row["state"], row["attempt"]) for row in [await conn.fetchrow(JOB, id) for id in ids]] == [
        ("queued", 0)
    ] * 4
