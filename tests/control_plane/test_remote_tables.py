"""A worker without a database works on tables of the user's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import Howdah, Outcome, Where
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from kit.node import eventually, quick
from kit.remote_node import registered, remote
from table.ddl import ddl

pytestmark = pytest.mark.anyio


def table_app(recorded: list[Any], **settings: Any) -> Howdah:
    """An app with a table and all hooks."""
    app = Howdah()
    table = app.table("uploads", max_attempts=1, **settings)

    @table.handler
    class Upload:
        open = True

        async def before_claim(self) -> bool | Where:
            return self.open

        async def before_execute(self, record: Any) -> None:
            recorded.append(("before", record["n"]))

        async def execute(self, record: Any) -> None:
            recorded.append(("execute", record["n"]))
            if record["n"] == 2:
                raise ValueError("two is bad")

        async def after_execute(self, record: Any, outcome: Outcome) -> None:
            recorded.append((outcome, record["n"]))

    app.upload = Upload  # type: ignore[attr-defined]
    return app


@asynccontextmanager
async def serving_table(app: Howdah, conn: Any, rows: int) -> AsyncIterator[ControlPlane]:
    await conn.execute(ddl(extra="n int"))
    await conn.execute("insert into uploads (n) select generate_series(1, $1::int)", rows)
    app.table("uploads", max_attempts=1)
    async with serving(app) as plane:
        yield plane


async def test_rows_of_a_table_are_worked_on_with_their_hooks(app: Howdah, conn: Any) -> None:
    recorded: list[Any] = []
    worker = table_app(recorded)
    worker.upload.open = False  # type: ignore[attr-defined]

    async with serving_table(app, conn, 2) as plane, remote(plane, worker, slots=1) as remote_node:
        await registered(remote_node)
        await asyncio.sleep(0.5)
        assert recorded == [], "the hook says not now"
        worker.upload.open = True  # type: ignore[attr-defined]

        async def over() -> bool:
            return await conn.fetchval("select count(*) from uploads where state in ('completed', 'failed')") == 2

        await eventually(over)

    assert recorded == [
        ("before", 1), ("execute", 1), (Outcome.OK, 1),
        ("before", 2), ("execute", 2), (Outcome.FAILED, 2),
    ]  # fmt: skip
    rows = await conn.fetch("select state, failure_message from uploads order by n")
    assert [tuple(row) for row in rows] == [("completed", None), ("failed", "ValueError: two is bad")]


async def test_a_table_may_say_how_much_one_worker_does(app: Howdah, conn: Any) -> None:
    recorded: list[Any] = []

    async with serving_table(app, conn, 5) as plane:
        remote_node = RemoteNode(
            table_app(recorded, total_jobs=3),
            quick(slots=1),
            lambda: ControlPlaneClient(plane.url, plane.tokens["work"]),
        )
        await asyncio.wait_for(remote_node.run(), 60)

    assert len([each for each in recorded if each[0] == "execute"]) == 3
    assert await conn.fetchval("select count(*) from uploads where state = 'queued'") == 2


async def test_a_row_that_takes_long_stays_ours_though_the_control_plane_is_content_with_fewer_beats(
    app: Howdah, conn: Any
) -> None:
    worker, runs = Howdah(), []
    table = worker.table("uploads", stalled_after=2.5)

    @table.handler
    async def upload(record: Any) -> None:
        runs.append(record["n"])
        await asyncio.sleep(5.0)

    await conn.execute(ddl(extra="n int"))
    await conn.execute("insert into uploads (n) values (1)")
    app.table("uploads", stalled_after=2.5)
    async with serving(app, heartbeat=30.0, offline_after=90.0) as plane, remote(plane, worker):

        async def over() -> bool:
            return await conn.fetchval("select state from uploads") == "completed"

        await eventually(over)
    assert runs == [1]
    assert await conn.fetchval("select num_resets from uploads") == 0
