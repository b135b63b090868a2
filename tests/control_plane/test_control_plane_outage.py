"""A control plane that is away longer than a lease, while nodes with the database go on: nothing is charged."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from control_plane.conftest import serving
from howdah import Howdah, Where
from kit.node import eventually, node
from kit.remote_node import remote
from table.ddl import ddl

pytestmark = pytest.mark.anyio

LEASE = 6.0
JOBS = "select kind, state, attempt, resets from howdah.jobs order by id"
ROWS = "select state::text, num_resets from uploads"


def declared(dsn: str, runs: Counter[str]) -> Howdah:
    """The application of the control plane and of its worker."""
    app = Howdah(dsn)

    @app.task(max_attempts=1)
    async def finishes() -> None:
        runs["finishes"] += 1
        await asyncio.sleep(LEASE / 2)

    @app.task(max_attempts=1)
    async def goes_on() -> None:
        runs["goes_on"] += 1
        if runs["goes_on"] == 1:
            await asyncio.sleep(20 * LEASE)

    async def upload(_row: Any) -> None:
        runs["upload"] += 1
        await asyncio.sleep(LEASE / 2)

    app.table("uploads", stalled_after=LEASE, heartbeat=1.0, max_resets=0).handler(upload)
    return app


@pytest.mark.parametrize("excused", [True, False], ids=["excused", "control"])
async def test_a_control_plane_away_longer_than_a_lease_costs_no_attempt(app: Howdah, conn: Any, excused: bool) -> None:
    """In the control, nodes take the control plane to be gone for good."""
    runs: Counter[str] = Counter()
    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) values (0)")
    served = declared(app.database.dsn, runs)
    watcher = Howdah(app.database.dsn)
    looks = watcher.table(
        "uploads", stalled_after=LEASE, heartbeat=1.0, max_resets=0, where=Where("num_resets < $1", 0)
    )

    @looks.handler
    async def never(_row: Any) -> None: ...

    options = {"offline_after": LEASE, "heartbeat": 1.0}
    async with node(watcher, lease=LEASE, heartbeat=1.0):
        async with serving(served, **options) as plane:
            for kind in ("finishes", "goes_on"):
                await plane.enqueue(kind, max_attempts=1)
            working = remote(plane, declared(app.database.dsn, runs), slots=3)
            await working.__aenter__()

            async def begun() -> bool:
                return len(runs) == 3

            await eventually(begun)
        try:
            if not excused:
                await conn.execute(
                    "update howdah.contact set seen_at = now() - interval '1 hour', since = now() - interval '1 hour'"
                    " where remote"
                )
            await asyncio.sleep(2.5 * LEASE)
            async with serving(declared(app.database.dsn, runs), port=plane.port, **options):

                async def over() -> Any:
                    jobs, rows = await conn.fetch(JOBS), await conn.fetch(ROWS)
                    states = {row["state"] for row in [*jobs, *rows]}
                    return (jobs, rows) if states <= {"done", "failed", "completed"} else None

                jobs, rows = await eventually(over, 60)
        finally:
            await working.__aexit__(None, None, None)
    found = [tuple(row) for row in [*jobs, *rows]]
    if excused:
        assert found == [("finishes", "done", 1, 0), ("goes_on", "done", 1, 0), ("completed", 0)]
        assert runs == {"finishes": 1, "goes_on": 2, "upload": 1}
    else:
        assert [state for _, state, *_ in found[:2]] == ["failed", "failed"]
