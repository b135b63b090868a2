"""A hook that hangs, a budget shared with a locked table: what else goes on, and that a node ends in time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from howdah import Budget
from howdah.table import handler as handler_module
from kit.node import eventually, node
from table.ddl import ddl

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("plain", [False, True])
async def test_a_before_claim_that_hangs_keeps_no_node_from_ending(app, uploads, rows, plain):
    hangs, asked = threading.Event(), []
    table = app.table("uploads", poll=0.1)

    class Async:
        async def before_claim(self):
            asked.append(1)
            await asyncio.sleep(600)

        async def execute(self, record): ...

    class Plain:
        def before_claim(self):
            asked.append(1)
            hangs.wait(600)

        def execute(self, record): ...

    table.handler(Plain if plain else Async)
    await rows.add()

    async def is_asked():
        return bool(asked)

    try:
        async with node(app, grace=1.0):
            await eventually(is_asked)
            began = time.monotonic()
        assert time.monotonic() - began < 10
        assert asked == [1], "a hook that has not answered is not asked again"
        assert await rows.states() == ["queued"]
    finally:
        hangs.set()


async def test_a_before_claim_is_bounded_in_time(app, uploads, rows, monkeypatch, caplog):
    monkeypatch.setattr(handler_module, "LONGEST_ASK", 0.5)
    table = app.table("uploads", poll=0.1)
    asked = []

    @table.handler
    class Slow:
        async def before_claim(self):
            asked.append(1)
            await asyncio.sleep(600 if len(asked) == 1 else 0)
            return True

        async def execute(self, record): ...

    await rows.add()
    async with node(app):
        await eventually(lambda: _completed(uploads, "uploads", 1))
    assert "before_claim of table uploads failed: it has not ended for 0.5 s" in caplog.text


async def test_a_locked_table_does_not_hold_up_one_that_shares_its_budget(app, uploads, rows, direct):
    await uploads.execute(ddl("downloads", extra="n int, size_mb int"))
    budget = Budget(memory=10, cost={"memory": "size_mb"})
    for name in ("uploads", "downloads"):

        async def execute(record) -> None: ...

        app.table(name, budget=budget, poll=0.1, stalled_after=60.0).handler(execute)
    other = await direct.connect("other")

    async def download(n):
        began = time.monotonic()
        await uploads.execute("insert into downloads (n, size_mb) values (1, 10)")
        await eventually(lambda: _completed(uploads, "downloads", n))
        return time.monotonic() - began

    async with node(app, slots=4, lease=30.0):
        await download(1)
        async with other.transaction():
            await other.execute("lock table uploads in share mode")
            await other.execute("insert into uploads (n, size_mb) select i, 5 from generate_series(1, 5) i")
            await asyncio.sleep(1.5)  # time for a claim of the locked table to begin
            assert max([await download(n) for n in range(2, 8)]) < 6, "it waited for the locked table"
        await eventually(lambda: _completed(uploads, "uploads", 5))
    await other.close()
    assert budget.left == {"memory": 10}


async def _completed(conn, table, n):
    return await conn.fetchval(f"select count(*) from {table} where state = 'completed'") == n
