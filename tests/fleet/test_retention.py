"""A control plane keeps house: finished jobs are kept a week, unless the application says otherwise."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Howdah, Retention
from howdah.fleet.options import ServeOptions
from howdah.fleet.server import Server
from kit.node import eventually
from kit.roles import serve_as_fleet

pytestmark = pytest.mark.anyio


async def finished_days_ago(app, conn, days):
    @app.task
    async def old() -> None: ...

    made = await old.enqueue()
    await conn.execute("delete from howdah.ready")
    await conn.execute(
        "insert into howdah.done (id, attempt, state, finished_at) values ($1, 1, 'f', now() - $2 * interval '1 day')",
        made.id,
        days,
    )
    return made.id


async def serve_for_a_moment(app, there):
    serve_as_fleet(app)
    server = Server(app, ServeOptions(port=0))
    serving = asyncio.create_task(server.run())
    try:
        return await eventually(there)
    finally:
        server.stop()
        await asyncio.wait_for(serving, 20)


async def test_a_week_is_the_default(app, conn):
    id = await finished_days_ago(app, conn, 8)

    async def gone():
        return not await conn.fetchval("select count(*) from howdah.done where id = $1", id)

    await serve_for_a_moment(app, gone)
    assert Server(app, ServeOptions()).retention.done == 7 * 86400


async def test_the_application_may_say_otherwise(database):
    month = Retention(done=30 * 86400, failed=30 * 86400)
    assert Server(Howdah(database.dsn, retention=month), ServeOptions()).retention == month
