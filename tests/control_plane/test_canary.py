"""A canary in every secret place, and a look into all that is written: it must be found nowhere (S1, S8, S14)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from starlette.applications import Starlette

from howdah import Howdah, WorkerOptions
from howdah.control_plane.openapi import document
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.sockets import http_server
from howdah.control_plane.tokens import make
from howdah.postgres.database import Database
from howdah.redact import scrub
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from kit.command import Command
from kit.node import ended

pytestmark = pytest.mark.anyio

CANARY = "Kanarienvogel4711"
LEAK = f"cannot reach postgresql://me:{CANARY}@db/app with password={CANARY} and Authorization: Bearer {CANARY}"


@pytest.fixture
async def guarded_dsn(direct, conn):
    """The DSN of a role whose password is the canary."""
    name = (
        f"canary_{os.getpid()}_{await conn.fetchval('select oid from pg_database where datname = current_database()')}"
    )
    await conn.execute(f"create role {name} superuser login password '{CANARY}'")
    parts = urlsplit(direct.dsn)
    yield urlunsplit(parts._replace(netloc=f"{name}:{CANARY}@{parts.netloc.rpartition('@')[2]}"))
    await conn.execute(f"drop role {name}")


async def test_no_secret_is_logged_or_answered(guarded_dsn, serve, conn, caplog, capfd):
    """S8: tokens, credentials, arguments, the password of the DSN and what errors say, in every log of the process."""
    caplog.set_level(logging.DEBUG)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx2", "httpcore2", "asyncio", "howdah", "asyncpg"):
        caplog.set_level(logging.DEBUG, logger=name)
    app = Howdah(guarded_dsn)

    @app.task
    async def noop(i: int = 0) -> None: ...

    answered = b""
    async with serve(app=app) as plane:
        secrets = [CANARY, *plane.tokens.values()]
        worker = await plane.worker()
        secrets.append(worker.credential)

        async def ask(method, path, body=None, **more):
            nonlocal answered
            response = await plane.ask(method, path, body, **more)
            answered += response.content + str(response.headers).encode()
            return response

        await plane.enqueue("strange", {"password": CANARY})
        for token in (
            CANARY,
            f"hwd_api_{CANARY}",
            make(),
            worker.credential,
            plane.tokens["read"],
            worker.credential + "x",
        ):
            secrets.append(token)
            await ask("POST", "/jobs", {"kind": "noop"}, token=token)
            await ask("POST", f"/workers/{worker.id}/heartbeat", {}, token=token)
        await ask("POST", "/jobs", {"kind": "noop", "args": {"i": CANARY}})
        await ask("POST", "/jobs", {"kind": "strange", "args": [CANARY]})
        await ask("POST", "/jobs", content=f'{{"kind": "noop", "args": {CANARY}}}'.encode())
        await ask("POST", "/jobs", content=f'{{"kind": "strange", "args": {{"a": "{CANARY}\\u0000"}}}}'.encode())
        id = await plane.enqueue()
        job = await worker.one()
        await worker.tell(f"log/{id}", {"token": job["token"] + 1, "lines": [CANARY]})
        await worker.fail(job, message=LEAK, traceback=LEAK, error=f"password={CANARY}", retry=False)
        await ask("GET", f"/jobs/{id}")
        await ask("GET", "/workers")
        await ask("GET", "/stats")
        await ask("GET", "/metrics")
        await ask("GET", "/openapi.json")

        database = await conn.fetchval("select current_database()")
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()",
            database,
        )
        await conn.execute(f"alter role {urlsplit(guarded_dsn).username} nologin")
        for _ in range(3):
            response = await ask("GET", "/stats")
            assert response.status == 503
            await ask("GET", "/ready")
            await asyncio.sleep(0.5)
        await conn.execute(f"alter role {urlsplit(guarded_dsn).username} login")
    printed = "".join(capfd.readouterr())
    logged = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert len(caplog.records) > 50
    assert "failed" in caplog.text
    assert len(answered) > 10_000
    for secret in secrets:
        assert secret not in logged
        assert secret not in printed
        assert secret.encode() not in answered


async def test_no_secret_of_an_error_is_kept_in_the_database(plane, worker, conn):
    """S8: what workers say of errors is scrubbed before it is kept, whichever way they say it."""
    for way in ("fail", "ack"):
        await plane.enqueue(max_attempts=1)
        job = await worker.one()
        words = {"error": f"token={CANARY}", "message": LEAK, "traceback": f"Traceback …\n{LEAK}"}
        if way == "fail":
            assert (await worker.fail(job, **words)).status == 200
        else:
            report = {"id": job["id"], "token": job["token"], "attempt": 1, "outcome": "failed", **words}
            assert (await worker.ack(report)).body["accepted"]
    rows = await conn.fetch("select error, message, traceback from howdah.attempt")
    over = await conn.fetch("select error from howdah.done")
    assert len(rows) == len(over) == 2
    assert CANARY not in str(rows) + str(over)
    assert "postgresql://me:***@db/app" in rows[0]["message"]
    held = await conn.fetch("select reason from howdah.hold")
    assert CANARY not in str(held)


async def test_a_remote_worker_keeps_the_secrets_of_its_handlers(plane, conn, caplog):
    """S8: the message and the traceback of an exception, on their way through the worker and the control plane."""
    caplog.set_level(logging.DEBUG)
    app = Howdah("postgresql://nowhere/none")

    @app.task(max_attempts=1)
    async def leaky(password: str) -> None:
        raise RuntimeError(LEAK)

    id = await plane.enqueue("leaky", {"password": CANARY}, max_attempts=1)
    remote_node = RemoteNode(app, WorkerOptions(slots=1), lambda: ControlPlaneClient(plane.url, plane.tokens["work"]))
    running = asyncio.create_task(remote_node.run())
    row = await ended(conn, id)
    remote_node.stop()
    await asyncio.wait_for(running, 60)
    assert row["state"] == "failed"
    assert "postgresql://me:***@db/app" in row["error"]
    kept = await conn.fetch("select * from howdah.attempt")
    assert len(kept) == 1
    assert CANARY not in str(kept) + str(row["error"]) + caplog.text
    assert plane.tokens["work"] not in caplog.text


def test_scrubbing_hostile_text_takes_no_time():
    """S10: any worker may send texts made to keep us busy."""
    for text in ("://:" * 5000, "password " * 2200, "password" + " " * 19_990, "://a:" * 4000 + "@" + "://:" * 4000):
        began = time.thread_time()  # of this thread alone, however busy the machine is
        scrub(text)
        assert time.thread_time() - began < 0.2


def test_no_secret_is_in_a_repr_or_in_the_document():
    database = Database(f"postgresql://me:{CANARY}@db/app")
    token = make()
    shown = repr([database, ControlPlaneClient("http://127.0.0.1:1", token), ServeOptions(), document()])
    assert CANARY not in shown
    assert token not in shown


async def test_no_secret_is_in_the_title_of_a_process(guarded_dsn, direct):
    """S8: what every user of the machine can read of a control plane that is configured by its environment."""
    with Command("serve", "--port", "0", dsn=guarded_dsn, HOWDAH_TOKEN=CANARY) as command:
        command.says("listens on")
        for id in (command.process.pid, *command.children):
            for name in ("cmdline", "comm"):
                assert CANARY not in Path(f"/proc/{id}/{name}").read_text()
        command.send(signal.SIGTERM)
        assert command.ends() == 0
        assert CANARY not in command.output


async def test_nobody_is_believed_to_be_who_forwarded_headers_say(plane, caplog):
    """S14: neither the address nor the host nor the scheme; and nobody is sent elsewhere."""
    assert http_server(Starlette(), ServeOptions()).config.proxy_headers is False
    caplog.set_level(logging.DEBUG)
    headers = {
        "X-Forwarded-For": "203.0.113.77",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.example.com",
        "Forwarded": "for=203.0.113.77",
        "Host": "evil.example.com",
    }
    for path, status in (("/workers/", 404), ("/workers", 200), ("//evil.example.com", 404)):
        response = await plane.http.get(
            f"{plane.url}{path}", headers={**headers, "Authorization": f"Bearer {plane.tokens['read']}"}
        )
        assert response.status_code == status
        assert "location" not in response.headers
        assert b"evil.example.com" not in response.content or path != "/workers"
    assert "203.0.113.77" not in caplog.text


async def test_every_answer_is_sealed(plane, worker):
    for response in (
        await plane.get("/workers"),
        await plane.get("/workers", token=None),
        await plane.get("/nowhere"),
        await plane.ask("PUT", "/workers"),
        await plane.get("/health", token=None),
        await plane.get("/metrics"),
        await worker.tell("claim", {}),
        await plane.ask("POST", "/workers/register", {"hostname": "w"}),
    ):
        assert "server" not in response.headers
        assert "x-powered-by" not in response.headers
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in response.headers
    assert (await plane.ask("PUT", "/workers")).headers["allow"]
    assert (await plane.ask("GET", "/workers/register")).status == 405


def test_nothing_in_the_fleet_can_be_made_to_run_what_it_reads():
    """S1: JSON only; no word that would turn data into code."""
    import howdah.control_plane
    import howdah.remote

    folders = [Path(package.__file__).parent for package in (howdah.control_plane, howdah.remote)]
    text = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    for word in (
        "pickle",
        "marshal",
        "dill",
        "yaml.load",
        "eval(",
        "exec(",
        "__import__",
        "import_module",
        "shell=True",
    ):
        assert word not in text
