"""deploy/roles.sql: howdah_fleet is what a control plane needs, and not more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn

from deploy.job_partitions import FAR, grew, partitions
from howdah import Howdah, Poison, WorkerOptions
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.tokens import Tokens
from howdah.maintenance.pruner import Pruner, Retention
from howdah.postgres.database import Database, Session
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from kit.command import Command
from kit.control_plane import serving as plane
from kit.node import eventually
from kit.roles import refuses
from table.ddl import ddl

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(app: Howdah) -> AsyncIterator[str]:
    """A control plane on a free port."""
    async with ControlPlaneServer(app, ServeOptions(heartbeat=0.5, offline_after=5, rate=1000)).open() as asgi:
        web = uvicorn.Server(uvicorn.Config(asgi, port=0, log_config=None, lifespan="off"))
        task = asyncio.create_task(web.serve())
        while not web.started:
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
        finally:
            web.should_exit = True
            await task


async def test_fleet_is_what_the_control_plane_needs(roles, conn, caplog):
    await conn.execute(ddl())
    await conn.execute("insert into uploads default values; grant select, update on uploads to howdah_fleet")
    await conn.execute("select howdah.grow(), setval('howdah.job_id', $1)", FAR)
    owner = Database(roles("howdah_owner"))
    session = Session(owner, "token")
    token, _ = await Tokens(owner, session).create("all", ["admin"])
    await session.close()
    app, remote = Howdah(roles("howdah_fleet")), Howdah("postgresql://nowhere/none")
    for each in (app, remote):
        _handlers(each)

    async with (
        serving(app) as url,
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}) as web,
    ):
        for kind in ("note", "note", "breaks", "rests"):
            later = {"key": "k", "delay": 3600} if kind == "rests" else {}
            answer = await web.post("/jobs", json={"kind": kind, **later})
            assert answer.status_code == 201, answer.text
        asleep = answer.json()["id"]
        worker = RemoteNode(remote, WorkerOptions(slots=2, grace=1), lambda: ControlPlaneClient(url, token))
        working = asyncio.create_task(worker.run())
        await eventually(lambda: conn.fetchval("select count(*) = 3 from howdah.done"), 20)
        await eventually(lambda: conn.fetchval("select state = 'completed' from uploads"), 20)
        await eventually(lambda: grew(conn))
        assert (await web.post(f"/jobs/{asleep}/cancel")).json()["result"] == "cancelled"
        for path in ("/workers", "/stats", f"/jobs/{asleep}", f"/jobs/{asleep}/log", "/metrics", "/ready"):
            assert (await web.get(path)).status_code == 200, path
        await _by_hand(web, token)
        assert (await web.post(f"/workers/{worker.node}/drain")).status_code == 200
        await asyncio.wait_for(working, 20)
        await eventually(lambda: conn.fetchval("select used_at is not null from howdah.api_token"))
    await Pruner(app.database, Retention(done=0.001, failed=0.001)).prune()

    assert await conn.fetchval("select count(*) from howdah.done") == 0, "pruned"
    assert min(await partitions(conn)) > FAR, "closed partitions are dropped"
    assert "permission denied" not in caplog.text


def _handlers(app: Howdah) -> None:
    @app.task
    async def note() -> None: ...

    @app.task
    async def breaks() -> None:
        raise Poison("no")

    @app.table("uploads").handler
    async def upload(row: dict[str, Any]) -> None: ...


async def _by_hand(web: httpx.AsyncClient, token: str) -> None:
    """The verbs our own worker does not use: log lines, complete, fail with a hold, release."""
    made = (await web.post("/workers/register", json={"hostname": "hand", "kinds": ["byhand"]})).json()
    own = {"Authorization": f"Bearer {made['credential']}"}
    for _ in range(2):
        assert (await web.post("/jobs", json={"kind": "byhand"})).status_code == 201
    for verb, more in (("complete", {}), ("fail", {"code": "RATE_LIMITED", "hold": 1})):
        [job] = (await web.post(f"/workers/{made['id']}/claim", json={"wait": 5}, headers=own)).json()["jobs"]
        payload = {"token": job["token"], "lines": ["a"], "progress": 0.5}
        assert (await web.post(f"/workers/{made['id']}/log/{job['id']}", json=payload, headers=own)).status_code == 204
        payload = {"token": job["token"], **more}
        answer = await web.post(f"/workers/{made['id']}/{verb}/{job['id']}", json=payload, headers=own)
        assert answer.status_code == 200, answer.text
    assert (await web.delete(f"/workers/{made['id']}", headers=own)).status_code == 204


async def test_what_the_control_plane_lacks_is_said_in_its_log(roles, conn, caplog):
    app = Howdah(roles("howdah_fleet"))
    async with plane(app) as lacking, lacking.client() as web:
        await conn.execute("revoke insert on howdah.node from howdah_fleet")
        answer = await web.post("/workers/register", json={"hostname": "w"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL")
    assert answer.json()["error"]["message"] == "the role of this server may not do that; its log says what it lacks"
    assert "POST /workers/register failed: permission denied for table node; docs/howto/deploy.md" in caplog.text


@pytest.mark.parametrize("role", ["worker", "read", "enqueue"])
def test_nobody_else_starts_a_control_plane(roles, role):
    with Command("serve", "--port", "0", "--dsn", roles(f"howdah_{role}")) as control:
        assert control.ends() == 1
        assert "howdah: permission denied for " in control.output
        assert "connect as a role that may" in control.output
        assert "Traceback" not in control.output


async def test_fleet_cannot_make_tokens_or_write_the_log(roles, conn):
    await refuses(
        roles("howdah_fleet"),
        "insert into howdah.api_token (name, hash, hint, scopes) values ('x', '', '', '{admin}')",
        "update howdah.api_token set scopes = '{admin}'",
        "delete from howdah.api_token",
        "select howdah.append('Order-1', '[{\"type\": \"x\"}]')",
        "update howdah.checkpoint set position = 0",
        "drop table howdah.job",
        "create table howdah.mine ()",
        "insert into howdah.migration (number, name, checksum) values (999, '', '')",
    )
