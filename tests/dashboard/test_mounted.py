"""A dashboard in another application: it acts on the database that the application has when it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from howdah import Howdah
from howdah.dashboard import Dashboard, Visitor, everybody
from howdah.postgres.database import Database

pytestmark = pytest.mark.anyio

ORIGIN = {"Origin": "http://site", "Sec-Fetch-Site": "same-origin"}
OPEN = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


def client(dashboard: Dashboard) -> httpx.AsyncClient:
    site = Starlette(routes=[Mount("/howdah", dashboard)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://site")


async def paused(database: Database) -> list[str]:
    app = Howdah(database.dsn, schema=database.schema)
    try:
        return [queue.name for queue in await app.admin.queues() if queue.paused]
    finally:
        await app.close()


@pytest.fixture
def another(server, administrator, template) -> Iterator[Database]:
    name = f"howdah_another_{uuid4().hex[:8]}"
    administrator.execute("create database {name} template {template}", name=name, template=template)
    yield Database(server.dsn_for(name))
    administrator.execute("drop database if exists {name} with (force)", name=name)


async def test_an_action_reaches_the_database_that_the_application_has_now(database, another):
    app = Howdah(database.dsn)
    dashboard = Dashboard(app, access=everybody("all"))
    async with client(dashboard) as http:
        assert (await http.get("/howdah/queues")).status_code == 200
        app.connect_to(another.dsn)

        done = await http.post("/howdah/queues/pause", data={"queue": "mail", "sure": "yes"}, headers=ORIGIN)

    await dashboard.close()
    await app.close()
    assert done.status_code == 303
    assert await paused(another) == ["mail"]
    assert await paused(database) == []


def test_it_answers_in_every_event_loop_and_leaves_no_connection_behind(database):
    app = Howdah(database.dsn)
    dashboard = Dashboard(app, access=everybody())

    async def ask() -> list[int]:
        async with client(dashboard) as http:
            return [(await http.get(path)).status_code for path in ("/howdah/", "/howdah/jobs", "/howdah/health")]

    assert [asyncio.run(ask()) for _ in range(3)] == [[200, 200, 200]] * 3

    async def connections() -> int:
        conn = await database.connect("test")
        try:
            for _ in range(100):
                if not (found := await conn.fetchval(OPEN)):
                    break
                await asyncio.sleep(0.05)
            return found
        finally:
            conn.terminate()

    assert asyncio.run(connections()) == 0


async def test_a_session_of_one_database_is_unknown_in_another(database, another):
    async def check(secret: str) -> Visitor | None:
        return Visitor("boss", "all") if secret == "right" else None

    app = Howdah(database.dsn)
    dashboard = Dashboard(app, sign_in=check)
    async with client(dashboard) as http:
        signed_in = await http.post("/howdah/login", data={"secret": "right", "to": "/queues"}, headers=ORIGIN)
        assert signed_in.status_code == 303
        assert (await http.get("/howdah/queues")).status_code == 200
        app.connect_to(another.dsn)

        assert (await http.get("/howdah/queues")).headers["location"].startswith("/howdah/login")

    await dashboard.close()
    await app.close()


async def test_it_can_be_made_before_a_database_is_named(monkeypatch, database):
    for name in ("HOWDAH_DSN", "DATABASE_URL", "PGHOST", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    app = Howdah()
    dashboard = Dashboard(app, access=everybody())
    async with client(dashboard) as http:
        without = await http.get("/howdah/queues")
        monkeypatch.setenv("DATABASE_URL", database.dsn)

        assert without.status_code == 503
        assert "HOWDAH_DSN" in without.text
        assert (await http.get("/howdah/queues")).status_code == 200

    await dashboard.close()
