"""Jobs over HTTP: enqueue, look, cancel, what they say, holds, rows of tables, and a database that is away."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from kit.node import eventually
from table.ddl import ddl

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------- enqueue, look, cancel


async def test_a_job_is_enqueued_and_shown(plane):
    response = await plane.ask(
        "POST", "/jobs", {"kind": "noop", "args": {"i": 3}, "queue": "red"}, token=plane.tokens["enqueue"]
    )
    assert response.status == 201
    assert response.body["fresh"] is True
    shown = await plane.get(f"/jobs/{response.body['id']}", token=plane.tokens["read"])
    assert shown.status == 200
    assert (shown.body["kind"], shown.body["queue"], shown.body["state"]) == ("noop", "red", "queued")


async def test_a_key_lets_one_job_live(plane):
    first = await plane.ask("POST", "/jobs", {"kind": "noop", "key": "k"})
    again = await plane.ask("POST", "/jobs", {"kind": "noop", "key": "k"})
    assert (again.status, again.body) == (201, {"id": first.body["id"], "fresh": False})


async def test_a_kind_the_app_does_not_know_is_not_checked(plane):
    await plane.enqueue("build", {"anything": [1]})
    worker = await plane.worker(kinds=["build"])
    assert (await worker.one())["args"] == {"anything": [1]}


SAID = "queue, priority, max_attempts, timeout"


async def test_what_is_not_said_is_as_the_task_says(plane, conn):
    @plane.app.task(queue="builds", priority=7, max_attempts=2, timeout=90, requires=["gpu"])
    async def compile() -> None: ...

    await plane.enqueue("compile")
    await plane.enqueue("compile", queue="red", priority=0, max_attempts=9, timeout=1, requires=[])
    await plane.enqueue("nobody knows")
    assert [tuple(row) for row in await conn.fetch(f"select {SAID} from howdah.jobs order by id")] == [
        ("builds+gpu", 7, 2, 90),
        ("red", 0, 9, 1),
        ("default", 0, 5, None),
    ]


async def test_a_token_is_held_against_the_queue_of_the_task(plane):
    @plane.app.task(queue="builds")
    async def compile() -> None: ...

    narrow, _ = await plane.store.create("narrow", ["enqueue"], queues=["default"])
    response = await plane.ask("POST", "/jobs", {"kind": "compile"}, token=narrow)
    assert (response.status, response.error["field"]) == (403, "queue")
    assert (await plane.ask("POST", "/jobs", {"kind": "noop"}, token=narrow)).status == 201


WRONG_JOBS = [
    ({}, "kind"),
    ({"kind": ""}, "kind"),
    ({"kind": "a\x00b"}, "kind"),
    ({"kind": "noop", "args": {"i": "x"}}, "args"),
    ({"kind": "noop", "args": {"j": 1}}, "args"),
    ({"kind": "strange", "args": [1]}, "args"),
    ({"kind": "strange", "args": 5}, "args"),
    ({"kind": "strange", "args": {"a": "\x00"}}, "args"),
    ({"kind": "noop", "meta": [1]}, "meta"),
    ({"kind": "noop", "queue": "a\nb"}, "queue"),
    ({"kind": "noop", "priority": 101}, "priority"),
    ({"kind": "noop", "max_attempts": 0}, "max_attempts"),
    ({"kind": "noop", "timeout": 0}, "timeout"),
    ({"kind": "noop", "delay": -1}, "delay"),
    ({"kind": "noop", "delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "run_at"),
    ({"kind": "noop", "run_at": "2030-01-01T00:00:00"}, "run_at"),
    ({"kind": "noop", "run_at": "soon"}, "run_at"),
    ({"kind": "noop", "key": ""}, "key"),
    ({"kind": "noop", "key": "a\x07"}, "key"),
    ({"kind": "noop", "requires": ["a+b"]}, "requires"),
    ({"kind": "noop", "slots": 1}, "slots"),
]


async def test_a_job_that_cannot_be_is_refused_with_the_field_named(plane, conn):
    for wrong, field in WRONG_JOBS:
        response = await plane.ask("POST", "/jobs", wrong)
        assert (response.status, response.error["code"], response.error.get("field")) == (400, "INVALID", field), wrong
    assert await conn.fetchval("select count(*) from howdah.job") == 0


async def test_what_is_not_json_is_400(plane):
    for content in (b"", b"{", b"nonsense", b"[]", b"null", b'{"kind": NaN}', b"\xff\xfe", b'{"kind":"\xff"}'):
        response = await plane.ask("POST", "/jobs", content=content)
        assert (response.status, response.error["code"]) == (400, "INVALID"), content


async def test_a_waiting_job_is_cancelled_at_once(plane, worker):
    id = await plane.enqueue()
    assert (await plane.ask("POST", f"/jobs/{id}/cancel")).body == {"id": id, "result": "cancelled"}
    assert (await plane.job(id))["state"] == "cancelled"
    assert (await plane.ask("POST", f"/jobs/{id}/cancel")).body == {"id": id, "result": "over"}
    assert await worker.claim(1) == []


async def test_a_job_nobody_knows_is_404(plane):
    for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/log"), ("GET", "/runs")):
        response = await plane.ask(method, f"/jobs/404{path}")
        assert (response.status, response.error["code"]) == (404, "UNKNOWN"), path


async def test_what_waits_and_runs_is_counted(plane, worker):
    for queue in ("red", "red", "blue"):
        await plane.enqueue(queue=queue)
    await plane.enqueue(queue="blue", delay=60)
    await worker.claim(1, room={"blue": 0})

    async def counted() -> bool:
        rows = (await plane.get("/stats")).body["queues"]
        counts = {row["queue"]: (row["queued"], row["scheduled"], row["running"]) for row in rows}
        return counts == {"red": (1, 0, 1), "blue": (1, 1, 0)}

    await eventually(counted)


# ---------------------------------------------------------------- what a job says


async def test_lines_and_progress_are_kept_in_order(plane, worker):
    id = await plane.enqueue()
    job = await worker.one()
    response = await worker.tell(f"log/{id}", {"token": job["token"], "lines": ["one", "two\x00"], "stream": "stdout"})
    assert (response.status, response.content) == (204, b"")
    await worker.tell(
        f"log/{id}", {"token": job["token"], "lines": ["three"], "stream": "stderr", "progress": 0.5, "note": "half"}
    )
    lines = (await plane.get(f"/jobs/{id}/log")).body["lines"]
    assert [(line["stream"], line["line"], line["attempt"]) for line in lines] == [
        ("stdout", "one", 1),
        ("stdout", "two\\0", 1),
        ("stderr", "three", 1),
    ]
    rest = (await plane.get(f"/jobs/{id}/log", params={"after": lines[1]["seq"]})).body["lines"]
    assert [line["line"] for line in rest] == ["three"]
    shown = await plane.job(id)
    assert (shown["progress"], shown["note"]) == (0.5, "half")


async def test_the_log_is_bounded(plane, worker, conn):
    id = await plane.enqueue()
    job = await worker.one()
    for wrong, field in (
        ({"lines": ["x" * 10_001]}, "lines[0]"),
        ({"lines": ["x"] * 1001}, "lines"),
        ({"progress": 1.5}, "progress"),
        ({"note": "n" * 501}, "note"),
        ({"stream": "other"}, "stream"),
    ):
        response = await worker.tell(f"log/{id}", {"token": job["token"], **wrong})
        assert (response.status, response.error["field"]) == (400, field)
    for _ in range(11):
        assert (await worker.tell(f"log/{id}", {"token": job["token"], "lines": ["x"] * 1000})).status == 204
    assert await conn.fetchval("select count(*) from howdah.job_log") == 10_000
    assert len((await plane.get(f"/jobs/{id}/log")).body["lines"]) == 1000
    response = await plane.get(f"/jobs/{id}/log", params={"after": "-1"})
    assert (response.status, response.error["field"]) == (400, "after")


async def test_who_is_done_says_nothing_more(plane, worker, conn):
    id = await plane.enqueue()
    job = await worker.one()
    await worker.complete(job)
    assert (await worker.tell(f"log/{id}", {"token": job["token"], "lines": ["late"]})).status == 409
    assert (await worker.tell(f"run/{id}", {"token": job["token"], "state": "done"})).status == 409
    assert await conn.fetchval("select count(*) from howdah.job_log") == 0


async def test_the_record_of_a_run(plane, worker):
    id = await plane.enqueue()
    job = await worker.one()
    begun = {"token": job["token"], "state": "running", "spec": {"prompt": "x"}}
    ended = {"token": job["token"], "state": "failed", "code": "TIMEOUT", "result": {"log": "y"}}
    for note in (begun, begun, ended, ended):
        assert (await worker.tell(f"run/{id}", note)).status == 204
    [run] = (await plane.get(f"/jobs/{id}/runs")).body["runs"]
    assert (run["state"], run["code"], run["spec"], run["result"]) == (
        "failed",
        "TIMEOUT",
        {"prompt": "x"},
        {"log": "y"},
    )
    assert (run["worker"], run["attempt"]) == (worker.id, 1)


# ---------------------------------------------------------------- holds


async def test_a_rate_limited_kind_is_left_alone_by_the_fleet_for_a_while(plane, worker):
    await plane.enqueue()
    await plane.enqueue()
    job = await worker.one()
    began = time.monotonic()
    response = await worker.fail(job, code="RATE_LIMITED", hold=12, retry_after=0)
    assert response.body["state"] == "queued"
    other = await plane.worker(kinds=["noop", "other"])
    assert await other.claim(10) == []
    mine = await plane.enqueue("other")
    [job] = await other.claim(10, wait=10)
    assert job["id"] == mine  # only that kind is held
    await other.complete(job)
    jobs = await other.claim(10, wait=30)
    assert {each["kind"] for each in jobs} == {"noop"}
    assert 11.9 < time.monotonic() - began < 40


async def test_a_hold_reaches_those_who_already_wait(plane, worker):
    waiting = await plane.worker()
    asked = asyncio.create_task(waiting.claim(10, wait=30))
    await asyncio.sleep(0.2)
    await plane.enqueue("other")
    limited = await plane.worker(kinds=["other", "noop"])
    job = await limited.one()
    # the kind of the job is held, not any that the worker names
    await limited.ack(
        {**{name: job[name] for name in ("id", "token", "attempt")}, "outcome": "retry", "hold": 60, "kind": "noop"}
    )
    id = await plane.enqueue()
    assert [each["id"] for each in await asked] == [id]


# ---------------------------------------------------------------- rows of tables


@pytest.fixture
async def tables(job_app, conn, serve):
    await conn.execute(ddl(extra="n int"))
    table = job_app.table("uploads")

    @table.handler
    async def execute(record: dict) -> None: ...

    async with serve() as plane:
        yield plane


async def test_rows_of_a_table_are_worked_on(tables, conn):
    await conn.execute("insert into uploads (n) select i from generate_series(1, 3) i")
    worker = await tables.worker(tables=["uploads"])
    jobs = await worker.claim(2, store="uploads")
    assert [job["args"]["n"] for job in jobs] == [1, 2]
    fate = (await worker.beat(*jobs, store="uploads")).body["fates"]["uploads"]
    assert len(fate["kept"]) == 2
    done = [{"id": job["id"], "token": job["token"], "attempt": 1, "outcome": "ok"} for job in jobs[:1]]
    assert len((await worker.ack(*done, store="uploads")).body["accepted"]) == 1
    stale = {**done[0], "token": done[0]["token"] + 1000}
    assert (await worker.ack(stale, store="uploads")).body["accepted"] == []
    held = [{"id": jobs[1]["id"], "token": jobs[1]["token"]}]
    assert (await worker.tell("release", {"held": held, "store": "uploads"})).body == {"jobs": 1}
    states = [row["state"] for row in await conn.fetch("select state from uploads order by id")]
    assert states == ["completed", "queued", "queued"]
    assert [job["args"]["n"] for job in await worker.claim(5, store="uploads", wait=2)] == [2, 3]


async def test_keys_that_fit_no_row_are_refused(tables, conn):
    await conn.execute("insert into uploads default values")
    worker = await tables.worker(tables=["uploads"])
    token = (await worker.one(store="uploads"))["token"]
    before = await conn.fetch("select * from uploads order by id")
    for id in ("nonsense", "1; drop table uploads", "\x00", "9" * 300):
        for verb, body in (
            ("ack", {"store": "uploads", "acks": [{"id": id, "token": token, "attempt": 1, "outcome": "ok"}]}),
            ("release", {"store": "uploads", "held": [{"id": id, "token": token}]}),
        ):
            response = await worker.tell(verb, body)
            assert (response.status, response.error["code"]) == (400, "INVALID"), (verb, id)
        beaten = await worker.tell("heartbeat", {"held": {"uploads": [{"id": id, "token": token}]}})
        assert beaten.status == 200, "other stores are answered"
        assert beaten.body["fates"]["uploads"].keys() == {"problem"}
    assert await conn.fetch("select * from uploads order by id") == before


# ---------------------------------------------------------------- without a database


async def test_without_its_database_the_api_says_503_and_recovers(server, plane, worker, conn):
    id = await plane.enqueue()
    assert (await plane.get("/ready")).status == 200
    name = await conn.fetchval("select current_database()")
    with psycopg.connect(server.dsn, autocommit=True) as root:
        root.execute(f'alter database "{name}" allow_connections false')
        root.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
        for method, path, body in (
            ("GET", f"/jobs/{id}", None),
            ("POST", "/jobs", {"kind": "noop"}),
            ("GET", "/stats", None),
            ("POST", "/workers/register", {"hostname": "w"}),
        ):
            response = await plane.ask(method, path, body)
            assert (response.status, response.error["code"]) == (503, "UNAVAILABLE"), path
            assert response.headers["retry-after"] == "1"
            assert name not in response.content.decode()
        response = await worker.tell("claim", {})
        assert response.status == 503
        ready = await plane.get("/ready", token=None)
        assert (ready.status, ready.error["code"]) == (503, "NOT_READY")
        assert (await plane.get("/health", token=None)).status == 200
        root.execute(f'alter database "{name}" allow_connections true')

    async def back() -> bool:
        return (await plane.get("/ready")).status == 200 and (await plane.get(f"/jobs/{id}")).status == 200

    await eventually(back)
    assert (await worker.one())["id"] == id
