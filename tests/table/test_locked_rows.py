"""Rows that a transaction of the user's has locked: their workers live, and nothing is reset or charged."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah.table import reset
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

STALL = 2.0


async def beat(store, jobs):
    """One heartbeat of these rows."""
    await store._resets.fetch(store._plan.sql["heartbeat"], [job.id for job in jobs], [jobs[0].token])


async def looks(store, seconds):
    """Look for silent rows all the time; what came of it."""
    back = failed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done = await store.reset(100)
        back, failed = back + done[0], failed + done[1]
        await asyncio.sleep(0.1)
    return back, failed


@pytest.fixture
async def locked(direct):
    """Lock every row, as a backfill does, until told otherwise."""
    other = await direct.connect("backfill")
    transaction = None

    class Locked:
        async def begin(self):
            nonlocal transaction
            transaction = other.transaction()
            await transaction.start()
            await other.execute("update uploads set size_mb = 1")

        async def end(self):
            await transaction.commit()

    yield Locked()
    await other.close()


@pytest.mark.parametrize("looked_twice", [True, False])
async def test_a_lock_longer_than_the_stall_time_resets_no_living_row(
    app, uploads, rows, store_for, locked, monkeypatch, looked_twice
):
    """With the control: one look would take the rows for silent as soon as they are free."""
    if not looked_twice:
        monkeypatch.setattr(reset, "WATCHED_FOR", 0.0)
    table = app.table("uploads", stalled_after=STALL, max_resets=0)
    worker, resetter, other = await store_for(table), await store_for(table), await store_for(table)
    await rows.add(20)
    jobs = await worker.claim(20, {})
    assert len(jobs) == 20

    await locked.begin()
    assert await looks(resetter, 1.5 * STALL) == (0, 0)
    await beat(worker, jobs)  # passes over the locked rows
    await locked.end()
    done = [await resetter.reset(100), await other.reset(100)]
    await beat(worker, jobs)
    assert await looks(resetter, 0.7 * STALL) == (0, 0)

    if looked_twice:
        assert done == [(0, 0), (0, 0)]
        assert set(await rows.states()) == {"processing"}
        assert await looks(resetter, 1.5 * STALL) == (0, 20), "now its worker is silent"
    else:
        assert done == [(0, 20), (0, 0)]


@pytest.mark.parametrize("bounded", [True, False])
async def test_a_resetter_that_was_frozen_begins_anew(app, uploads, rows, store_for, locked, monkeypatch, bounded):
    """With the control: if it believed what it saw before, it would reset a living row."""
    if not bounded:
        monkeypatch.setattr(reset, "LONGEST_GAP", 100.0)
    table = app.table("uploads", stalled_after=3.0)
    worker, resetter = await store_for(table), await store_for(table)
    await rows.add()
    jobs = await worker.claim(1, {})
    await asyncio.sleep(0.45 * 3.0)
    assert await resetter.reset(100) == (0, 0), "the row is watched from now on"

    await locked.begin()
    await asyncio.sleep(2.5)  # neither the resetter nor a heartbeat gets at it
    await locked.end()

    assert await resetter.reset(100) == ((0, 0) if bounded else (1, 0))
    if bounded:
        await beat(worker, jobs)
        assert await rows.states() == ["processing"]


async def test_a_reset_that_comes_late_changes_nothing(app, uploads, rows, store_for):
    store = await store_for(app.table("uploads", stalled_after=STALL))
    await rows.add()
    [job] = await store.claim(1, {})
    heard, now = await uploads.fetchrow(
        "select extract(epoch from last_heartbeat_at)::float8, extract(epoch from clock_timestamp())::float8"
        " from uploads"
    )
    statement = store._plan.sql["reset"]

    assert await uploads.fetch(statement, [1], [job.token], [heard], now - 10, 5.0, 5, "m") == []
    assert await uploads.fetch(statement, [1], [job.token], [heard], now + 10, 5.0, 5, "m") == [], "another server"
    assert await uploads.fetch(statement, [1], [job.token], [heard - 1], now, 5.0, 5, "m") == [], "it was heard since"
    assert await uploads.fetch(statement, [1], [job.token + 1], [heard], now, 5.0, 5, "m") == [], "another lease"
    [row] = await uploads.fetch(statement, [1], [job.token], [heard], now, 60.0, 5, "m")
    assert (row["state"], row["done"]) == ("queued", True)


async def test_many_resetters_do_not_hide_rows_from_each_other(app, uploads, rows, store_for, direct):
    store = await store_for(app.table("uploads"))
    await rows.add(3)
    await store.claim(3, {})
    await rows.silence()
    statement, values = store._plan.silent(None)
    other = await direct.connect("other")
    async with other.transaction():
        assert len(await other.fetch(statement, 0.5, 100, 30.0, [], [], *values)) == 3
        assert len(await uploads.fetch(statement, 0.5, 100, 30.0, [], [], *values)) == 3
        await other.execute("update uploads set n = 1 where id = 2")
        assert [row["id"] for row in await uploads.fetch(statement, 0.5, 100, 30.0, [], [], *values)] == [1, 3]
    await other.close()


async def test_healthy_nodes_run_each_row_once_whatever_a_backfill_locks(app, uploads, rows, locked):
    table = app.table("uploads", stalled_after=STALL, heartbeat=1.0, poll=0.1)
    begun, go = [], asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        begun.append(record["n"])
        await go.wait()

    async def all_begun():
        return len(begun) >= 12

    await rows.add(12)
    slow = {"slots": 6, "heartbeat": 1.0, "lease": 10.0}
    async with node(app, **slow), node(app, **slow), node(app, **slow):
        await eventually(all_begun)
        await locked.begin()
        await asyncio.sleep(2 * STALL)
        await locked.end()
        await asyncio.sleep(STALL)
        go.set()
        await eventually(lambda: _are(uploads, 12))
    assert sorted(begun) == list(range(1, 13)), "each once"
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0


async def _are(conn, completed):
    return await conn.fetchval("select count(*) from uploads where state = 'completed'") == completed
