"""Records that are slow to read, or cannot be read: no loop without progress, and a bad row fails alone."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Howdah
from howdah.postgres.database import Database
from howdah.table import record_reader
from howdah.table.record_reader import RecordReader
from kit.node import eventually, node

pytestmark = pytest.mark.anyio


async def _completed(conn, n):
    return await conn.fetchval("select count(*) from uploads where state = 'completed'") == n


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_slow_view_is_read_in_smaller_parts(app, uploads, rows, monkeypatch, guarded):
    """Unguarded, the rows are claimed and released for ever."""
    if not guarded:
        monkeypatch.setattr(RecordReader, "most", property(lambda _: None, lambda _, most: None), raising=False)
    await uploads.execute("create view slow as select u.*, pg_sleep(0.1)::text as slept from uploads u")
    impatient = Database(app.database.dsn, command_timeout=1.0)
    monkeypatch.setattr(Howdah, "database", property(lambda _: impatient))
    table = app.table("uploads", view="slow", poll=0.1, stalled_after=10.0)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])

    await rows.add(40)
    async with node(app, slots=40):
        if not guarded:
            await asyncio.sleep(3)  # what is shown is that nothing happens
            assert not seen
            return
        await eventually(lambda: _completed(uploads, 40), 60)
    assert sorted(seen) == list(range(1, 41)), "each once"
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0


@pytest.mark.parametrize("slots", [1, 10])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_view_that_raises_for_one_row_fails_it_alone(app, uploads, rows, slots, monkeypatch, guarded):
    """Unguarded, its neighbours in the claim are not read either."""
    if not guarded:
        monkeypatch.setattr(record_reader, "_refuses", lambda _: False)
    await uploads.execute(
        "create function f(int) returns int language plpgsql as"
        " $$ begin if $1 = 1 then raise 'cannot be read'; end if; return $1; end $$;"
        " create view v as select id, f(n) as n from uploads"
    )
    table = app.table("uploads", view="v", poll=0.1, max_attempts=1)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])

    await rows.add(10)
    async with node(app, slots=slots):
        if not guarded:
            await asyncio.sleep(1.5)  # what is shown is that nothing happens
            assert not seen
            return
        await eventually(lambda: _completed(uploads, 9))
        await eventually(lambda: _failed(uploads))
    assert sorted(seen) == list(range(2, 11))
    assert "cannot be read" in (await rows.one(1))["failure_message"]
    assert await uploads.fetchval("select sum(num_resets) from uploads") == 0


async def _failed(conn):
    return await conn.fetchval("select count(*) from uploads where state = 'failed'") == 1
