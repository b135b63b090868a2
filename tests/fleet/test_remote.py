"""A worker without a database does what one with a database does."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from fleet.conftest import Plane, serving
from howdah import ConfigError, Howdah, Outcome, Where, WorkerOptions
from howdah.fleet import messages as m
from howdah.fleet.client import Client
from howdah.fleet.ease import SHORTEST, Ease
from howdah.fleet.remote import RemoteConductor
from howdah.fleet.store import RemoteStore
from kit import errands
from kit.node import ended, eventually, quick, state
from table.ground import ddl

pytestmark = pytest.mark.anyio

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@asynccontextmanager
async def remote(plane: Plane, app: Howdah = errands.app, **options: Any) -> AsyncIterator[RemoteConductor]:
    """A worker at work while the block lasts."""
    conductor = RemoteConductor(app, quick(**options), lambda: Client(plane.url, plane.tokens["work"]))
    running = asyncio.create_task(conductor.run())
    try:
        yield conductor
    finally:
        conductor.stop()
        await asyncio.wait_for(running, 30)


@pytest.fixture
async def served(app: Howdah) -> AsyncIterator[Plane]:
    """A control plane that knows no task at all."""
    async with serving(app) as plane:
        yield plane


async def result(conn: Any, id: int) -> Any:
    row = await ended(conn, id)
    return msgspec.json.decode(row["result"]) if row["result"] else None


async def registered(conductor: RemoteConductor) -> int:
    async def known() -> int:
        return conductor.node if conductor.ready else 0

    return int(await eventually(known))


# ---------------------------------------------------------------- handlers


async def test_arguments_arrive_in_their_types_and_results_are_kept(served: Plane, conn: Any) -> None:
    args = {"parcel": {"to": "Kyoto", "at": "2031-05-04T10:00:00Z"}, "copies": 2}
    sent = await served.enqueue("send", args)
    bad = await served.enqueue("send", {"parcel": 7}, max_attempts=1)

    async with remote(served):
        assert await result(conn, sent) == {"type": "Parcel", "year": 2031, "to": "Kyoto", "copies": 2}
        assert (await ended(conn, bad))["error"].startswith("Poison: task 'send' cannot be called so")


async def test_every_outcome_is_recorded_as_by_a_worker_with_a_database(served: Plane, conn: Any) -> None:
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


async def test_threads_and_processes_run_handlers(served: Plane, conn: Any) -> None:
    thread, process = await served.enqueue("in_thread"), await served.enqueue("in_process")

    async with remote(served):
        assert (await result(conn, thread)).startswith("howdah-job")
        assert await result(conn, process) not in (None, os.getpid())


async def test_a_trace_goes_on_in_the_handler(served: Plane, conn: Any) -> None:
    id = await conn.fetchval("select id from howdah.enqueue('traced', '{}')")
    await conn.execute("update howdah.job set trace = $2 where id = $1", id, TRACE)

    async with remote(served):
        assert await result(conn, id) == TRACE


async def test_what_needs_the_database_is_left_alone_with_a_warning(
    served: Plane, conn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    booked, other = await served.enqueue("book"), await served.enqueue("traced")

    async with remote(served):
        await ended(conn, other)
    assert await state(conn, booked) == "queued"
    assert "left alone, since they need the database (transactions, budgets, consumers): book" in caplog.text

    only = Howdah()
    only.task(transactional=True, name="b")(errands.book.handler.function)
    with pytest.raises(ConfigError, match="no task or table that can be run without a database"):
        RemoteConductor(only, WorkerOptions(), lambda: Client(served.url, None))


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


# ---------------------------------------------------------------- who gets what


async def test_labels_and_queues_say_what_a_worker_gets(served: Plane, conn: Any) -> None:
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


async def test_the_limit_of_a_queue_is_kept(served: Plane, conn: Any) -> None:
    ids = [await served.enqueue("nap", {"seconds": 60}, queue="film") for _ in range(4)]

    async with remote(served, queues={"film": 2}, grace=0.0) as conductor:

        async def two_run() -> bool:
            return len(conductor.running) == 2

        await eventually(two_run)
        await asyncio.sleep(0.5)
        assert sorted([await state(conn, id) for id in ids]) == ["queued", "queued", "running", "running"]
    assert [(row["state"], row["attempt"]) for row in [await conn.fetchrow(JOB, id) for id in ids]] == [
        ("queued", 0)
    ] * 4


JOB = "select * from howdah.jobs where id = $1"


# ---------------------------------------------------------------- tables


def table_app(said: list[Any], **settings: Any) -> Howdah:
    """An app with a table and all hooks."""
    app = Howdah()
    table = app.table("uploads", max_attempts=1, **settings)

    @table.handler
    class Upload:
        open = True

        async def before_claim(self) -> bool | Where:
            return self.open

        async def before_execute(self, record: Any) -> None:
            said.append(("before", record["n"]))

        async def execute(self, record: Any) -> None:
            said.append(("execute", record["n"]))
            if record["n"] == 2:
                raise ValueError("two is bad")

        async def after_execute(self, record: Any, outcome: Outcome) -> None:
            said.append((outcome, record["n"]))

    app.upload = Upload  # type: ignore[attr-defined]
    return app


@asynccontextmanager
async def serving_table(app: Howdah, conn: Any, rows: int) -> AsyncIterator[Plane]:
    await conn.execute(ddl(extra="n int"))
    await conn.execute("insert into uploads (n) select generate_series(1, $1::int)", rows)
    app.table("uploads", max_attempts=1)
    async with serving(app) as plane:
        yield plane


async def test_rows_of_a_table_are_worked_on_with_their_hooks(app: Howdah, conn: Any) -> None:
    said: list[Any] = []
    worker = table_app(said)
    worker.upload.open = False  # type: ignore[attr-defined]

    async with serving_table(app, conn, 2) as plane, remote(plane, worker, slots=1) as conductor:
        await registered(conductor)
        await asyncio.sleep(0.5)
        assert said == [], "the hook says not now"
        worker.upload.open = True  # type: ignore[attr-defined]

        async def over() -> bool:
            return await conn.fetchval("select count(*) from uploads where state in ('completed', 'failed')") == 2

        await eventually(over)

    assert said == [
        ("before", 1), ("execute", 1), (Outcome.OK, 1),
        ("before", 2), ("execute", 2), (Outcome.FAILED, 2),
    ]  # fmt: skip
    rows = await conn.fetch("select state, failure_message from uploads order by n")
    assert [tuple(row) for row in rows] == [("completed", None), ("failed", "ValueError: two is bad")]


async def test_a_table_may_say_how_much_one_worker_does(app: Howdah, conn: Any) -> None:
    said: list[Any] = []

    async with serving_table(app, conn, 5) as plane:
        conductor = RemoteConductor(
            table_app(said, total_jobs=3), quick(slots=1), lambda: Client(plane.url, plane.tokens["work"])
        )
        await asyncio.wait_for(conductor.run(), 20)

    assert len([each for each in said if each[0] == "execute"]) == 3
    assert await conn.fetchval("select count(*) from uploads where state = 'queued'") == 2


async def test_a_row_that_takes_long_stays_ours_though_the_control_plane_is_content_with_fewer_beats(
    app: Howdah, conn: Any
) -> None:
    worker, runs = Howdah(), []
    table = worker.table("uploads", stalled_after=1.0)

    @table.handler
    async def upload(record: Any) -> None:
        runs.append(record["n"])
        await asyncio.sleep(3.0)

    await conn.execute(ddl(extra="n int"))
    await conn.execute("insert into uploads (n) values (1)")
    app.table("uploads", stalled_after=1.0)
    async with serving(app, heartbeat=30.0, offline_after=90.0) as plane, remote(plane, worker):

        async def over() -> bool:
            return await conn.fetchval("select state from uploads") == "completed"

        await eventually(over)
    assert runs == [1]
    assert await conn.fetchval("select num_resets from uploads") == 0


# ---------------------------------------------------------------- what the control plane asks


async def test_a_running_job_is_cancelled_by_the_next_heartbeat(served: Plane, conn: Any) -> None:
    id = await served.enqueue("nap", {"seconds": 60})

    async with remote(served) as conductor:

        async def runs() -> bool:
            return bool(conductor.running)

        await eventually(runs)
        assert (await served.ask("POST", f"/jobs/{id}/cancel")).body["said"] == "asked"
        row = await ended(conn, id)
        assert (row["state"], row["error"]) == ("cancelled", "Cancelled: cancelled while running")


async def test_a_worker_that_is_asked_to_drain_takes_no_more_and_ends(app: Howdah, conn: Any) -> None:
    async with serving(app, heartbeat=30.0, offline_after=90.0) as plane:
        conductor = RemoteConductor(errands.app, quick(), lambda: Client(plane.url, plane.tokens["work"]))
        running = asyncio.create_task(conductor.run())
        id = await plane.enqueue("nap", {"seconds": 1.5})

        async def runs() -> bool:
            return bool(conductor.running)

        await eventually(runs)
        await asyncio.sleep(0.3)  # it waits for more by now
        assert (await plane.ask("POST", f"/workers/{conductor.node}/drain")).body["status"] == "draining"
        later = await plane.enqueue("traced")
        # the next heartbeat is half a minute away
        await asyncio.wait_for(running, 10)

        assert await state(conn, id) == "done"
        assert await state(conn, later) == "queued"
        assert await plane.status(conductor.node) == "offline"


async def test_a_worker_nobody_knows_any_more_registers_again(served: Plane, conn: Any) -> None:
    lost = await served.enqueue("nap", {"seconds": 60})

    async with remote(served, grace=0.0) as conductor:

        async def runs() -> bool:
            return bool(conductor.running)

        await eventually(runs)
        first = conductor.node
        assert (await served.ask("DELETE", f"/workers/{first}")).status == 204

        async def again() -> bool:
            return conductor.node != first and len(conductor.running) == 1

        await eventually(again)
        other = await served.enqueue("traced")
        row = await ended(conn, other)
        assert row["node"] == conductor.node
        assert await state(conn, lost) == "running"
        assert (await conn.fetchrow(JOB, lost))["node"] == conductor.node


# ---------------------------------------------------------------- its end, and its manners


async def test_nothing_is_left_behind_at_the_end(served: Plane, conn: Any) -> None:
    before = asyncio.all_tasks()
    async with remote(served) as conductor:
        node = await registered(conductor)
        await ended(conn, await served.enqueue("traced"))
        beater = conductor._beater
    assert beater is not None

    async def gone() -> bool:
        tasks = {task for task in asyncio.all_tasks() - before if (task.get_name() or "").startswith("howdah ")}
        return not {task for task in tasks if task.get_name() != "howdah line"}

    await eventually(gone)
    assert "howdah-heart" not in [thread.name for thread in threading.enumerate()]
    assert beater._http.is_closed
    assert conductor.client._http.is_closed
    assert await served.status(node) == "offline"


async def test_what_was_claimed_and_never_heard_of_goes_back_at_the_goodbye(served: Plane, conn: Any) -> None:
    id = await served.enqueue("traced")
    worker = await served.worker(kinds=["traced"])
    assert await worker.claim(), "its answer is lost, say"

    assert (await worker.leave()).status == 204
    row = await conn.fetchrow(JOB, id)
    assert (row["state"], row["attempt"], row["resets"]) == ("queued", 0, 0)


class Member:
    """A worker that registered, and nothing more."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def join_again(self, stale: int) -> None: ...

    def asked_to_drain(self) -> None: ...


async def test_what_came_while_waiting_and_nobody_took_goes_back(served: Plane, conn: Any) -> None:
    client = Client(served.url, served.tokens["work"])
    await client.register(m.Register(hostname="n", kinds=["traced"]))
    store = RemoteStore(Member(client))
    id = await served.enqueue("traced")
    await store.rest()
    assert await state(conn, id) == "running"

    async def back() -> bool:
        return await state(conn, id) == "queued"

    await eventually(back)
    assert (await conn.fetchrow(JOB, id))["attempt"] == 0
    assert store.held() == []

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
        conductor = RemoteConductor(
            errands.app, WorkerOptions(poll=1.0), lambda: Client(f"http://127.0.0.1:{port}", None)
        )
        running = asyncio.create_task(conductor.run())
        await asyncio.sleep(3.0)
        conductor.stop()
        await asyncio.wait_for(running, 10)

    claims = len([path for path in asked if path.endswith("/claim")])
    assert 3 <= claims <= 14, asked
    assert asked[-1] == "/workers/1"


async def test_it_asks_for_leave_to_wait_and_no_more_often(served: Plane, conn: Any) -> None:
    asked: list[str] = []

    class Noted(Client):
        async def tell(self, verb: str, *args: Any, **more: Any) -> Any:
            asked.append(verb)
            return await super().tell(verb, *args, **more)

    conductor = RemoteConductor(errands.app, quick(), lambda: Noted(served.url, served.tokens["work"]))
    running = asyncio.create_task(conductor.run())
    await registered(conductor)
    await asyncio.sleep(2.0)
    conductor.stop()
    await asyncio.wait_for(running, 30)

    assert asked.count("claim") == 2, "one look, and one that waits"
    assert asked.count("heartbeat") > 2


async def test_turns_do_not_come_too_fast_and_a_single_one_never_waits() -> None:
    ease, loop = Ease(), asyncio.get_running_loop()
    began = loop.time()
    assert await ease.turn()
    assert loop.time() - began < SHORTEST / 2

    for _ in range(10):
        assert await ease.turn()
    assert loop.time() - began >= 10 * SHORTEST * 0.9
    never_mind = asyncio.Event()
    never_mind.set()
    assert not await ease.turn(never_mind), "there is no need any more"
    await asyncio.sleep(2 * SHORTEST)
    assert await ease.turn(never_mind), "there was nothing to wait for"


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
    ("url", "token", "said"),
    [
        ("{url}", "hwd_api_wrong", "UNAUTHORIZED"),
        ("{url}/elsewhere", "{token}", "NOT_FOUND"),
        ("{url}", "{read}", "FORBIDDEN"),
    ],
)
async def test_a_worker_that_is_refused_says_so_and_ends(served: Plane, url: str, token: str, said: str) -> None:
    known = {"url": served.url, "token": served.tokens["work"], "read": served.tokens["read"]}
    conductor = RemoteConductor(
        errands.app, WorkerOptions(), lambda: Client(url.format(**known), token.format(**known))
    )
    with pytest.raises(ConfigError, match=said):
        await conductor.run()
    assert conductor.client._http.is_closed


@pytest.mark.parametrize(
    "url", ["ftp://here", "localhost:8080", "http://", "http://me:secret@here", "http://h?x=1", "http://h:x"]
)
def test_a_url_that_cannot_be_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match="the server is a URL such as") as raised:
        Client(url, None)
    assert "secret" not in str(raised.value)


async def test_no_secret_is_logged_at_any_level(served: Plane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with remote(served) as conductor:
        await registered(conductor)
    assert conductor._joined is not None
    assert conductor._joined.credential not in caplog.text
    assert served.tokens["work"] not in caplog.text
