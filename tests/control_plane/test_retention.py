"""A control plane keeps house: finished jobs are kept a week, unless the application says otherwise."""

from __future__ import annotations

import asyncio
import sys

import pytest

from howdah import Howdah, Retention
from howdah.cli import control_plane
from howdah.cli.target import Target
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
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
    server = ControlPlaneServer(app, ServeOptions(port=0))
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
    assert ControlPlaneServer(app, ServeOptions()).retention.done == 7 * 86400


async def test_the_application_may_say_otherwise(database):
    month = Retention(done=30 * 86400, failed=30 * 86400)
    assert ControlPlaneServer(Howdah(database.dsn, retention=month), ServeOptions()).retention == month


async def test_the_application_may_say_what_nodes_keep_by_default(database):
    app = Howdah(database.dsn, retention=Retention())
    assert ControlPlaneServer(app, ServeOptions()).retention.done == 14 * 86400


@pytest.mark.parametrize(
    ("text", "done", "failed"),
    [("", 7, 7), ("retention.done = '14d'", 14, 30), ("retention.done = '14d'\nretention.failed = '30d'", 14, 30)],
)
@pytest.mark.parametrize("words", [(), ("app = 'keeper:app'",)], ids=["no app", "app"])
async def test_the_settings_may_say_otherwise(database, tmp_path, monkeypatch, words, text, done, failed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOWDAH_DSN", database.dsn)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "keeper.py").write_text("from howdah import Howdah\napp = Howdah()\n")
    (tmp_path / "howdah.toml").write_text("\n".join([*words, text]))

    kept = ControlPlaneServer(control_plane._app(Target()), ServeOptions()).retention
    monkeypatch.delitem(sys.modules, "keeper", raising=False)
    assert (kept.done, kept.failed) == (done * 86400, failed * 86400)
