"""Secrets over HTTP: the worker that claims a job gets them, and nobody else, in whatever language it is written."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from howdah import Howdah, Secret, WorkerOptions
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from howdah.secrets import MARK
from kit.node import ended
from kit.secret_app import app as confidants
from kit.secret_app import leak

pytestmark = pytest.mark.anyio

CANARY = "Kanarienvogel-4711"
LOOKS = ("", "/log", "/runs")


@pytest.fixture
def job_app(app: Howdah) -> Howdah:
    """The application that is served: it knows what is secret."""

    @app.task(max_attempts=1)
    async def charge(card: Secret[str], user: int = 1) -> None: ...

    return app


async def looks(plane: Any, id: int) -> str:
    """All that can be read of a job."""
    responses = [await plane.get(f"/jobs/{id}{what}", token=plane.tokens["read"]) for what in LOOKS]
    assert [each.status for each in responses] == [200] * len(LOOKS)
    return "".join(each.content.decode() for each in responses)


async def test_only_the_worker_that_claims_is_told(plane, conn):
    id = await plane.enqueue("charge", {"card": CANARY}, meta={"team": "a"})
    worker = await plane.worker(kinds=["charge"])
    job = await worker.one()

    assert job["args"] == {"card": CANARY}
    assert job["meta"] == {"team": "a", MARK: ["/card"]}
    for status in ("running", "done"):
        assert CANARY not in await looks(plane, id)
        if status == "running":
            await worker.complete(job, result={"ok": True, "token": CANARY, "dsn": f"pg://me:{CANARY}@db"})
    assert (await plane.job(id))["result"] == {"ok": True, "token": "***", "dsn": "pg://me:***@db"}


@pytest.mark.parametrize("way", ["fail", "ack"])
async def test_a_worker_of_any_language_that_tells_is_not_quoted(plane, conn, way):
    """It sends the secret in its error, its log, its notes and the record of its run."""
    id = await plane.enqueue("charge", {"card": CANARY})
    worker = await plane.worker(kinds=["charge"])
    job = await worker.one()
    words = {"error": f"Refused {CANARY}", "message": f"card {CANARY}", "traceback": "x" * 15_000 + CANARY}

    responses = [
        await worker.tell(
            f"log/{id}", {"token": job["token"], "lines": [f"> {CANARY}"], "note": CANARY, "progress": 0.5}
        ),
        await worker.tell(f"run/{id}", {"token": job["token"], "state": "running", "spec": job["args"]}),
    ]
    assert [each.status for each in responses] == [204, 204]
    if way == "fail":
        assert (await worker.fail(job, **words, retry=False)).status == 200
    else:
        report = {"id": id, "token": job["token"], "attempt": 1, "outcome": "failed", **words}
        assert (await worker.ack(report, finished=[job["token"]])).body["accepted"]

    [kept] = await conn.fetch("select error, message, traceback from howdah.attempt")
    lines = await conn.fetch("select line from howdah.job_log")
    notes = await conn.fetch("select note from howdah.progress")
    assert CANARY not in str([kept, lines, notes])
    assert (kept["error"], kept["message"]) == ("Refused ***", "card ***")
    assert kept["traceback"].endswith("***")
    assert lines[0]["line"] == "> ***"
    seen = await looks(plane, id)
    assert CANARY not in seen
    assert '"spec":{"card":"***"}' in seen


async def test_a_remote_worker_keeps_what_it_was_told(plane, conn, caplog):
    caplog.set_level(logging.DEBUG)
    app = Howdah("postgresql://nowhere/none")
    for kind in ("charge", "charge_in_thread", "charge_in_process"):
        app.tasks[kind] = confidants.tasks[kind]
    ids = [await plane.enqueue(kind, {"card": CANARY}, max_attempts=1, meta={MARK: ["/card"]}) for kind in app.tasks]
    remote_node = RemoteNode(app, WorkerOptions(slots=3), lambda: ControlPlaneClient(plane.url, plane.tokens["work"]))
    running = asyncio.create_task(remote_node.run())
    rows = [await ended(conn, id) for id in ids]
    remote_node.stop()
    await asyncio.wait_for(running, 60)

    assert [row["state"] for row in rows] == ["failed"] * 3
    assert {row["error"] for row in rows} == {"RuntimeError: {'card': '***'}"}
    tables = [await conn.fetch(f"select * from howdah.{table}") for table in ("attempt", "job_log", "progress", "done")]
    assert all(tables)
    assert CANARY not in str(tables)
    assert leak.__name__ in tables[0][0]["traceback"]
    for id in ids:
        assert CANARY not in await looks(plane, id)


async def test_arguments_that_do_not_fit_are_not_quoted(plane):
    for args in ({"card": [CANARY]}, {"card": {"a": CANARY}}, {"card": CANARY, "user": "x"}):
        response = await plane.ask("POST", "/jobs", {"kind": "charge", "args": args})
        assert response.status == 400
        assert CANARY not in response.content.decode()


async def test_the_application_decides_what_of_a_result_is_read(app, serve):
    shy = Howdah(app.database.dsn, redact=lambda kind, part, value: {part: kind} if part == "result" else value)

    @shy.task
    async def noop() -> None: ...

    async with serve(app=shy) as plane:
        id = await plane.enqueue()
        worker = await plane.worker()
        await worker.complete(await worker.one(), result={"iban": CANARY})
        assert (await plane.job(id))["result"] == {"result": "noop"}
        assert CANARY not in json.dumps(await plane.job(id))
