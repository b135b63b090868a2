"""The worker in shell: it follows docs/reference/protocol.md, against a real control plane."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest
import uvicorn

from howdah import Howdah
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.tokens import Tokens
from howdah.postgres.database import Database, Session
from kit.http_proxy import Proxy
from kit.node import ended, eventually
from kit.roles import fleet, owner
from kit.serve_process import free_port

FOLDER = Path(__file__).parents[2] / "examples" / "shell-worker"
WORKER = FOLDER / "worker.sh"
LACKING = [name for name in ("curl", "jq", "timeout") if shutil.which(name) is None]

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}")]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def token(database: Database) -> str:
    session = Session(owner(database), "token")
    made, _ = await Tokens(owner(database), session).create("all", ["admin"])
    await session.close()
    return made


@asynccontextmanager
async def serving(database: Database, port: int, lease: float = 3) -> AsyncIterator[None]:
    """A control plane; ends as one that is stopped: whoever waits is cut off."""
    options = ServeOptions(port=port, heartbeat=0.3, offline_after=lease, rate=1000)
    async with ControlPlaneServer(Howdah(fleet(database).dsn), options).open() as asgi:
        config = uvicorn.Config(asgi, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        web = uvicorn.Server(config)
        task = asyncio.create_task(web.serve())
        while not web.started:
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            web.should_exit = True
            await task


@pytest.fixture
def kinds(tmp_path: Path) -> Callable[..., None]:
    """Makes programs the worker can run, beside those that ship."""
    folder = tmp_path / "kinds"
    shutil.copytree(FOLDER / "kinds", folder)

    def add(**programs: str) -> None:
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    return add


@pytest.fixture
def start(port: int, token: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the worker; ends what is left of it."""
    running: list[subprocess.Popen[bytes]] = []

    def start(server: str | None = None) -> subprocess.Popen[bytes]:
        env = {
            "PATH": os.environ["PATH"],
            "HOWDAH_SERVER": server or f"http://127.0.0.1:{port}",
            "HOWDAH_TOKEN": token,
            "KINDS": str(tmp_path / "kinds"),
            "TMPDIR": str(tmp_path),
        }
        with (tmp_path / "stderr").open("ab") as errors:
            running.append(subprocess.Popen([WORKER], env=env, stderr=errors, stdin=subprocess.DEVNULL))
        return running[-1]

    yield start
    for process in running:
        for each in [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()
        process.wait()


@pytest.fixture
async def web(port: int, token: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, timeout=60
    ) as client:
        yield client


async def enqueue(web: httpx.AsyncClient, kind: str, **more: Any) -> int:
    answer = await web.post("/jobs", json={"kind": kind, **more})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


async def wait_for(process: subprocess.Popen[bytes], seconds: float = 60) -> int:
    return await asyncio.to_thread(process.wait, seconds)


async def test_the_whole_story(database, conn, port, token, kinds, start, web, tmp_path):
    kinds(
        broken="echo no key >&2; exit 77",
        slow=f"touch {tmp_path}/begun; sleep 1.5; echo slept",
        late="sleep 30",
        held=f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo gone",
    )
    async with serving(database, port, lease=30):
        worker = start()
        children = psutil.Process(worker.pid)
        counts = [await enqueue(web, "word_count", args={"text": text}) for text in ("one", "one two", "'$(id)\" x")]
        bad = await enqueue(web, "word_count", args={"words": 3})
        broken = await enqueue(web, "broken", max_attempts=3)
        late = await enqueue(web, "late", timeout=0.5, max_attempts=1)
        rows = [await ended(conn, id, 30) for id in (*counts, bad, broken, late)]
        body = (await web.get(f"/jobs/{counts[1]}/log")).json()["lines"]

        assert [row["state"] for row in rows] == ["done"] * 3 + ["failed"] * 3
        assert [row["result"] for row in rows[:3]] == [b'{"words":1}', b'{"words":2}', b'{"words":2}']
        assert [row["error"] for row in rows[3:]] == [
            "INVALID_SPEC: there is no text\n",
            "AUTH_FAILED: no key\n",
            "TIMEOUT: ",
        ]
        assert [(line["stream"], line["line"]) for line in body] == [("stderr", "counting 7 characters")]
        held = await enqueue(web, "held")
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.lease where first_id = $1", held))

    # the control plane is away when the job ends, and comes back
    (tmp_path / "go").touch()
    await asyncio.sleep(2)
    async with serving(database, port, lease=30):
        row = await ended(conn, held)
        assert (row["state"], row["attempt"], row["result"]) == ("done", 1, b'"gone\\n"')
        node = await conn.fetchval("select count(*) from howdah.node")
        assert node == 1, "it is known still"

        # TERM: what runs is finished, what waits is left, the worker says goodbye
        last, left = await enqueue(web, "slow"), await enqueue(web, "slow")
        await eventually(lambda: asyncio.to_thread((tmp_path / "begun").exists))
        family = children.children(recursive=True)
        worker.terminate()
        assert await wait_for(worker) == 0
        assert (await ended(conn, last))["state"] == "done"
        assert (await web.get(f"/jobs/{left}")).json()["state"] == "queued"
        [gone] = (await web.get("/workers")).json()["workers"]
        assert gone["status"] == "offline"
        assert not psutil.wait_procs(family, timeout=30)[1], "nothing of it is left"
        assert [each.name for each in tmp_path.glob("tmp.*")] == []
    assert token not in (tmp_path / "stderr").read_text()


async def test_a_job_is_cancelled_while_it_runs(database, conn, port, kinds, start, web):
    kinds(late="exec sleep 30")
    async with serving(database, port):
        start()
        id = await enqueue(web, "late")
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.lease"))
        await asyncio.sleep(0.5)
        assert (await web.post(f"/jobs/{id}/cancel")).json()["result"] == "asked"

        assert (await ended(conn, id))["state"] == "cancelled"
        assert (await ended(conn, await enqueue(web, "word_count", args={"text": "a"})))["state"] == "done"


async def test_long_jobs_keep_their_lease(database, conn, port, kinds, start, web):
    kinds(late="sleep 5")
    async with serving(database, port):
        start()
        row = await ended(conn, await enqueue(web, "late"))

        assert (row["state"], row["attempt"]) == ("done", 1), "longer than the lease of 3 s"


async def test_a_worker_told_to_drain_ends(database, conn, port, kinds, start, web):
    kinds(slow="sleep 3")
    async with serving(database, port):
        worker = start()
        id = await enqueue(web, "slow")
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.lease"))
        [known] = (await web.get("/workers")).json()["workers"]
        assert (await web.post(f"/workers/{known['id']}/drain")).json()["status"] == "draining"

        assert await wait_for(worker) == 0
        assert (await ended(conn, id))["state"] == "done"


@pytest.mark.parametrize("verb", ["log", "complete"])
async def test_term_lets_it_say_to_the_end_what_it_is_saying(database, conn, port, kinds, start, web, verb):
    kinds(talk="echo one >&2; echo two >&2; echo done")
    async with serving(database, port, lease=30), Proxy(port) as wire:
        slow = wire.add("dither", f"/{verb}/", times=1, seconds=2)
        worker = start(wire.url)
        id = await enqueue(web, "talk")

        async def saying() -> bool:
            return slow.hits == 1

        await eventually(saying)
        worker.terminate()
        assert await wait_for(worker) == 0
        assert (await ended(conn, id))["state"] == "done"
        lines = (await web.get(f"/jobs/{id}/log")).json()["lines"]
        assert [line["line"] for line in lines] == ["one", "two"]
        assert [passed for passed in wire.passed if passed[0] in ("log", "complete")] == [
            ("log", 204),
            ("complete", 200),
        ]


async def test_term_ends_a_wait_for_jobs_at_once(database, conn, port, kinds, start):
    kinds()
    async with serving(database, port, lease=30), Proxy(port) as wire:
        claim = wire.add("delay", "/claim$")
        worker = start(wire.url)

        async def waiting() -> bool:
            return claim.hits == 1

        await eventually(waiting)
        began = time.monotonic()
        worker.terminate()
        assert await wait_for(worker) == 0
        assert time.monotonic() - began < 15, "it did not wait for the 20 s it asked for"


async def test_a_worker_that_was_forgotten_registers_again(database, conn, port, kinds, start, web):
    kinds()
    async with serving(database, port):
        start()
        await ended(conn, await enqueue(web, "word_count", args={"text": "a"}))
        [known] = (await web.get("/workers")).json()["workers"]
        await conn.execute("update howdah.node set stopped_at = now(), state = 'offline'")  # as of one long silent

        row = await ended(conn, await enqueue(web, "word_count", args={"text": "a"}), 30)
        assert (row["state"], row["node"] != known["id"]) == ("done", True)


async def test_a_bad_token_is_final(database, port):
    env = {"PATH": os.environ["PATH"], "HOWDAH_SERVER": f"http://127.0.0.1:{port}", "HOWDAH_TOKEN": "hwd_api_x"}
    async with serving(database, port):
        ran = await asyncio.to_thread(
            subprocess.run, [WORKER], env=env, capture_output=True, text=True, timeout=60, check=False
        )

    assert ran.returncode == 2
    assert '"code":"UNAUTHORIZED"' in ran.stderr


def test_it_is_short():
    assert len(WORKER.read_text().splitlines()) <= 60
