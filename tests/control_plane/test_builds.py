"""Builds and commands through the real sidecar: what they leave in the repository, in the result and in the record."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from howdah import ArgumentError, CodedError, ConfigError, Howdah
from howdah_agent.executors import builds
from howdah_agent.executors.sidecar import sidecar
from kit.control_plane import run_remote_node, serving
from kit.node import ended, eventually, job, node
from kit.sidecar import TOKEN, Repository, running_sidecar

pytestmark = pytest.mark.anyio

AGENT = '#!/bin/sh\nset -e\nprompt=$(cat)\necho "working"\neval "$prompt"\n'
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repositories")


@pytest.fixture
async def beside(repository, tmp_path):
    """A sidecar whose agent does what its prompt says."""
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    flags = ["--agent", str(agent), "--allow", str(repository.bare.parent), "--kill-after", "0.3s"]
    flags += ["--command", "feature=sh -c 'echo feature $0 $1; echo $1 > $0'", "-c", "2"]
    async with running_sidecar(tmp_path, *flags) as found:
        yield found


@asynccontextmanager
async def working(where, app, beside, **settings):
    """A node of one kind or the other that builds."""
    builds.install(app, url=beside.url, token=TOKEN, **settings)
    if where == "database":
        async with node(app) as found:
            yield found
        return
    there = Howdah(NOWHERE)
    builds.install(there, url=beside.url, token=TOKEN, **settings)
    async with serving(app) as plane, run_remote_node(there, plane) as found:
        yield found


both = pytest.mark.parametrize("where", ["database", "http"])


async def runs(conn, id):
    rows = await conn.fetch("select * from howdah.run where job = $1 order by attempt", id)
    return [dict(row) for row in rows]


@both
async def test_a_build_clones_executes_commits_and_pushes(where, app, conn, beside, repository):
    async with working(where, app, beside):
        made = await app.tasks["build"].enqueue(
            prompt="cat README; echo {{word}} > new", variables={"word": "hello"}, auto_commit=True, auto_push=True,
            git_clone_url=str(repository.bare),
        )  # fmt: skip
        row = await ended(conn, made.id, 30)

    assert row["state"] == "done", row["error"]
    result = json.loads(row["result"])
    assert result.pop("duration_ms") > 0
    assert result == {
        "success": True,
        "output": "working\na shop\n",
        "error": None,
        "error_code": None,
        "commit_sha": repository.head,
        "files_changed": ["new"],
        "artifacts": [],
    }
    assert repository.show("new") == "hello\n"
    assert repository.log()[-1] == "build: cat README; echo {{word}} > new"
    lines = await conn.fetch("select line from howdah.job_log where id = $1 order by seq", made.id)
    assert [line["line"] for line in lines] == ["working", "a shop"]
    [run] = await runs(conn, made.id)
    assert (run["kind"], run["attempt"], run["state"], run["code"]) == ("build", 1, "done", None)
    assert json.loads(run["spec"])["auto_push"] is True
    assert json.loads(run["result"])["commit_sha"] == repository.head
    assert run["finished_at"] >= run["started_at"]
    assert beside.workspaces() == []


@both
async def test_a_command_clones_runs_and_pushes(where, app, conn, beside, repository):
    async with working(where, app, beside):
        sdlc = app.tasks["sdlc"]
        made = await sdlc.enqueue(command="feature", args=["init", "name"], git_clone_url=str(repository.bare))
        row = await ended(conn, made.id, 30)

    assert row["state"] == "done", row["error"]
    assert json.loads(row["result"])["files_changed"] == ["init"]
    assert repository.show("init") == "name\n"
    assert [run["state"] for run in await runs(conn, made.id)] == ["done"]


async def test_a_build_without_a_repository_has_nothing_to_push(app, conn, beside):
    async with working("database", app, beside):
        made = await app.tasks["build"].enqueue(prompt="echo hello")
        wrong = await app.tasks["build"].enqueue(prompt="echo hello", auto_commit=True)
        row, refused = await ended(conn, made.id, 30), await ended(conn, wrong.id, 30)

    assert json.loads(row["result"])["commit_sha"] is None
    assert refused["error"].startswith("INVALID_SPEC: commit needs a repository")
    assert (refused["attempt"], (await runs(conn, wrong.id))[0]["code"]) == (1, "INVALID_SPEC")


async def test_a_spec_without_a_prompt_is_refused_before_it_is_enqueued(app, beside):
    builds.install(app, url=beside.url, token=TOKEN)
    for spec in ({}, {"prompt": ""}, {"prompt": 7}, {"prompt": "x", "unknown": 1}, {"prompt": "x", "auto_push": "yes"}):
        with pytest.raises(ArgumentError):
            await app.tasks["build"].enqueue(**spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"prompt": "x {{a}}"}, "the prompt names {{a}}"),
        ({"prompt": "x", "template": "no"}, "there is no template 'no'"),
        ({"prompt": "x", "template": "shop"}, "the prompt names {{lang}}"),
    ],
)
def test_a_prompt_that_cannot_be_made_is_an_invalid_spec(spec, words):
    with pytest.raises(CodedError, match=words.replace("{", r"\{")) as refused:
        builds.filled(spec["prompt"], spec.get("template"), {}, {"shop": "{{prompt}} in {{lang}}"})
    assert refused.value.code == "INVALID_SPEC"


def test_a_value_is_not_read_as_a_template():
    filled = builds.filled("{{a}}", "t", {"a": "{{b}}", "b": "no"}, {"t": "<{{prompt}}>"})
    assert filled == "<{{b}}>"


@both
async def test_failures_have_their_class_and_their_record(where, app, conn, beside, repository):
    async with working(where, app, beside):
        build = app.tasks["build"]
        auth = await build.enqueue(prompt="echo 'Invalid API key' >&2; exit 1")
        forbidden = await build.enqueue(prompt="true", git_clone_url="/etc")
        sdlc = await app.tasks["sdlc"].enqueue(command="rm", args=["-rf"])
        agent = await build.using(max_attempts=1).enqueue(prompt="echo unauthorized; exit 9")
        rows = [await ended(conn, made.id, 30) for made in (auth, forbidden, sdlc, agent)]
        records = [(await runs(conn, made.id))[0] for made in (auth, forbidden, sdlc, agent)]

    assert [row["state"] for row in rows] == ["failed"] * 4
    codes = ["AUTH_FAILED", "INVALID_SPEC", "INVALID_SPEC", "AGENT_ERROR"]
    assert [row["error"].partition(":")[0] for row in rows] == codes
    assert [row["attempt"] for row in rows] == [1, 1, 1, 1], "no retry is of use"
    assert [(run["state"], run["code"]) for run in records] == [("failed", code) for code in codes]
    assert json.loads(records[0]["result"])["error"].endswith("Invalid API key")


async def test_what_is_rate_limited_is_tried_again_later_and_held_for_the_fleet(app, conn, beside):
    async with working("http", app, beside, hold=True):
        made = await app.tasks["build"].enqueue(prompt="echo 'rate limit; retry after 500' >&2; exit 1")
        left = "select extract(epoch from until - now()) from howdah.hold where kind = 'build'"
        assert 400 < await eventually(lambda: conn.fetchval(left), 30) <= 500

        async def waits():
            return (await job(conn, made.id))["state"] == "queued"

        await eventually(waits)
    assert [(run["state"], run["code"]) for run in await runs(conn, made.id)] == [("failed", "RATE_LIMITED")]


@both
async def test_a_cancelled_build_is_stopped_and_its_record_says_so(where, app, conn, beside, tmp_path):
    async with working(where, app, beside):
        made = await app.tasks["build"].enqueue(prompt=f"touch {tmp_path}/here; sleep 300")

        async def there():
            return (tmp_path / "here").exists()

        await eventually(there, 30)
        await app.admin.cancel([made.id])
        row = await ended(conn, made.id, 30)

        async def clean():
            return not beside.workspaces()

        await eventually(clean)
    assert row["state"] == "cancelled"
    assert [(run["state"], run["code"]) for run in await runs(conn, made.id)] == [("failed", "CANCELLED")]


async def test_a_build_that_takes_too_long_is_stopped(app, conn, beside):
    async with working("database", app, beside, timeout=2.0, max_attempts=1):
        made = await app.tasks["build"].enqueue(prompt="sleep 300")
        row = await ended(conn, made.id, 30)

        async def clean():
            return not beside.workspaces()

        await eventually(clean)
    assert "imeout" in row["error"] or "TIMEOUT" in row["error"]
    [run] = await runs(conn, made.id)
    assert (run["state"], run["code"]) == ("failed", "TIMEOUT")


WORKER = """
from howdah import Howdah
from howdah_agent.executors import builds

app = Howdah()
builds.install(app, url="{url}", token="{token}")
"""


async def test_the_run_of_a_killed_worker_is_lost_and_the_next_one_is_another(app, conn, beside, tmp_path):
    builds.install(app, url=beside.url, token=TOKEN)
    there = Howdah(NOWHERE)
    builds.install(there, url=beside.url, token=TOKEN)
    (tmp_path / "killed.py").write_text(WORKER.format(url=beside.url, token=TOKEN))
    async with serving(app) as plane:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HOWDAH_TOKEN": plane.token}
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "howdah", "worker", "-a", "killed:app", "--server", plane.url, env=environment
        )
        prompt = f"touch {tmp_path}/here; while ! test -e {tmp_path}/go; do sleep 0.05; done"
        made = await app.tasks["build"].enqueue(prompt=prompt)

        async def begun():
            return (tmp_path / "here").exists()

        await eventually(begun, 30)
        assert [(run["attempt"], run["state"]) for run in await runs(conn, made.id)] == [(1, "running")]
        worker.kill()
        await worker.wait()

        async def states():
            return [(run["attempt"], run["state"], run["code"]) for run in await runs(conn, made.id)]

        async def lost():
            return await states() == [(1, "lost", "STALE_WORKER")] and not beside.workspaces()

        await eventually(lost, 30)
        (tmp_path / "go").touch()
        async with run_remote_node(there, plane):
            assert (await ended(conn, made.id, 60))["state"] == "done"
        assert await states() == [(1, "lost", "STALE_WORKER"), (2, "done", None)]
        async with plane.client() as client:
            body = (await client.get(f"/jobs/{made.id}/runs")).json()["runs"]
        assert [(run["attempt"], run["state"], run["kind"]) for run in body] == [
            (1, "lost", "build"),
            (2, "done", "build"),
        ]
        assert body[1]["result"]["success"] is True


async def test_only_who_holds_a_job_may_write_its_record(app, conn, beside):
    builds.install(app, url=beside.url, token=TOKEN)
    made = await app.tasks["build"].enqueue(prompt="true")
    async with serving(app) as plane, plane.client() as client:
        worker = (await client.post("/workers/register", json={"hostname": "x", "kinds": ["build"]})).json()
        mine = {"Authorization": f"Bearer {worker['credential']}"}
        path = f"/workers/{worker['id']}/run/{made.id}"
        early = await client.post(path, json={"token": 1, "state": "running"}, headers=mine)
        assert (early.status_code, early.json()["error"]["code"]) == (409, "STALE")
        [held] = (await client.post(f"/workers/{worker['id']}/claim", json={}, headers=mine)).json()["jobs"]
        token = held["token"]
        assert (await client.post(path, json={"token": token, "state": "running"}, headers=mine)).status_code == 204
        wrong = await client.post(path, json={"token": token + 1, "state": "done"}, headers=mine)
        assert wrong.status_code == 409
        assert (await client.post(path, json={"token": token, "state": "lost"}, headers=mine)).status_code == 400
        ended_so = {"token": token, "state": "done", "result": {"success": True}}
        for _ in range(2):
            assert (await client.post(path, json=ended_so, headers=mine)).status_code == 204
        done = await client.post(f"/workers/{worker['id']}/complete/{made.id}", json={"token": token}, headers=mine)
        assert done.status_code == 200
        late = await client.post(path, json={"token": token, "state": "failed"}, headers=mine)
        assert late.status_code == 409
    [run] = await runs(conn, made.id)
    assert (run["state"], run["node"], json.loads(run["result"])) == ("done", worker["id"], {"success": True})


async def test_a_busy_sidecar_costs_no_attempt(app, conn, beside, tmp_path):
    async with working("database", app, beside):
        prompt = f"while ! test -e {tmp_path}/go; do sleep 0.05; done"
        made = [await app.tasks["build"].enqueue(prompt=prompt) for _ in range(3)]

        async def refused():
            records = await conn.fetch("select code from howdah.run where code = 'BUSY'")
            return len(records) == 1

        await eventually(refused, 30)
        (tmp_path / "go").touch()
        rows = [await ended(conn, each.id, 30) for each in made]
    assert [row["attempt"] for row in rows] == [1, 1, 1]
    assert await conn.fetchval("select count(*) from howdah.run where state = 'done'") == 3


async def test_a_sidecar_that_dies_is_no_fault_of_the_agent(app, conn, beside, tmp_path):
    async with working("database", app, beside):
        made = await app.tasks["build"].enqueue(prompt=f"touch {tmp_path}/here; sleep 300")

        async def begun():
            return (tmp_path / "here").exists()

        await eventually(begun, 30)
        await beside.end(signal.SIGKILL)

        async def retried():
            return await conn.fetchval("select error from howdah.attempt where id = $1", made.id)

        assert (await eventually(retried, 30)).startswith("SidecarGone")


# ---------------------------------------------------------------- calling back


class Listener:
    """Somebody who is called back."""

    def __init__(self):
        heard = self.heard = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                heard.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener():
    listener = Listener()
    yield listener
    listener.close()


async def test_whoever_asked_is_told_what_came_of_it(app, conn, beside, listener):
    async with working("database", app, beside, callbacks=[f"{listener.url}/ci"]):
        build = app.tasks["build"].using(meta={"project_id": "shop"})
        good = await build.enqueue(prompt="echo hi", callback_url=f"{listener.url}/ci/1")
        bad = await build.enqueue(prompt="echo unauthorized >&2; exit 1", callback_url=f"{listener.url}/ci/2")
        for made in (good, bad):
            await ended(conn, made.id, 30)
    heard = dict(listener.heard)
    assert heard["/ci/1"]["task_id"] == good.id
    assert (heard["/ci/1"]["project_id"], heard["/ci/1"]["status"]) == ("shop", "completed")
    assert heard["/ci/1"]["result"]["output"] == "working\nhi\n"
    assert (heard["/ci/2"]["status"], heard["/ci/2"]["result"]["error_code"]) == ("failed", "AUTH_FAILED")


async def test_nobody_else_is_called_back(app, conn, beside, listener):
    urls = [
        listener.url,
        f"{listener.url}/circus",
        f"{listener.url}/ci/../x",
        "http://localhost/ci/",
        "http://127.1/ci",
        "http://[::ffff:127.0.0.1]/ci",
        "http://2130706433/ci",
        listener.url.replace("http://", "http://u@") + "/ci/",
        "file:///etc/passwd",
        "/ci",
    ]
    async with working("database", app, beside, callbacks=[f"{listener.url}/ci/"]):
        made = [await app.tasks["build"].enqueue(prompt="true", callback_url=url) for url in urls]
        rows = [await ended(conn, each.id, 30) for each in made]
    assert {row["error"].partition(":")[0] for row in rows} == {"INVALID_SPEC"}
    assert listener.heard == []


# ---------------------------------------------------------------- any companion


class Answers:
    """A companion of one's own; each answer is a status, a type, and a body."""

    def __init__(self, *answers):
        self.asked = []
        waiting = list(answers)

        async def answer(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            self.asked.append((head.split(b"\r\n")[0].decode(), json.loads(await reader.readexactly(length))))
            status, kind, body, *headers = waiting.pop(0)
            lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", "Connection: close", *headers, "", body]
            writer.write("\r\n".join(lines).encode())
            writer.close()

        self._answer = answer

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/render"
        return self

    async def __aexit__(self, *_):
        self._server.close()


async def test_any_companion_can_do_the_work(app, conn):
    lines = '{"stream":"stdout","line":"one"}\n\n{"progress":0.5,"note":"half"}\n{"pages":3}\n'
    answers = [
        (200, "application/json", '{"pages":2}'),
        (200, "application/x-ndjson", lines),
        (422, "application/json", '{"error":"no such page"}'),
        (401, "text/plain", "no"),
        (429, "text/plain", "slowly", "Retry-After: 700"),
        (500, "text/plain", "oops"),
        (200, "application/x-ndjson", '{"stream":"stdout","line":"cut'),
        (200, "application/json", '{"success":false,"exit_code":77,"stderr":"x"}'),
    ]
    async with Answers(*answers) as there:
        render = sidecar(app, "render", there.url, takes={"page": int}, max_attempts=2)
        async with node(app, slots=1):
            made = [await render.enqueue(page) for page in range(len(answers))]

            async def all_tried():
                tried = "select count(*) from howdah.attempt where id = any($1) or outcome = 'ok'"
                return await conn.fetchval(tried, [each.id for each in made]) >= 6

            await eventually(all_tried, 30)
            done = [await ended(conn, each.id) for each in made[:2]]
        assert [json.loads(row["result"]) for row in done] == [{"pages": 2}, {"pages": 3}]
        assert there.asked[0] == (
            "POST /render HTTP/1.1",
            {"job": made[0].id, "attempt": 1, "token": there.asked[0][1]["token"], "args": {"page": 0}},
        )
        rows = await conn.fetch("select line from howdah.job_log where id = $1", made[1].id)
        assert [row["line"] for row in rows] == ["one"]
        query = "select error from howdah.attempt where id = any($1) order by id"
        errors = [row["error"].partition(":")[0] for row in await conn.fetch(query, [each.id for each in made[2:]])]
        assert errors == ["INVALID_SPEC", "AUTH_FAILED", "RATE_LIMITED", "SidecarGone", "SidecarGone", "AUTH_FAILED"]
        wait = "select extract(epoch from run_at - now()) from howdah.jobs where id = $1"
        assert 600 < await conn.fetchval(wait, made[4].id) <= 700


@pytest.mark.parametrize("url", ["http://example.com/x", "http://10.0.0.1/x", "ftp://127.0.0.1/", "127.0.0.1:80", ""])
def test_a_companion_is_on_this_machine(app, url):
    with pytest.raises(ConfigError):
        sidecar(app, "render", url)
    with pytest.raises(ConfigError):
        builds.install(app, url=url, token=TOKEN)
