"""Which attempts count as lost: those whose lease the database says is gone, and no others."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Backoff, LeaseLost, Outcome, Transaction, telemetry
from kit.node import ended, eventually, node

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_a_lost_lease_that_a_handler_raises_is_an_error_like_any_other(app, conn, transactional):
    async def run() -> None:
        if len(runs) < 2:
            runs.append(1)
            raise LeaseLost("of something else")

    if transactional:

        @app.task(transactional=True, retry=Backoff(first=0))
        async def charge(tx: Transaction) -> None:
            await run()
    else:

        @app.task(retry=Backoff(first=0))
        async def charge() -> None:
            await run()

    runs: list[int] = []
    made = await charge.enqueue()
    async with node(app):
        row = await ended(conn, made.id)
    assert (row["state"], row["attempt"]) == ("done", 3)
    assert (
        await conn.fetchval("select array_agg(error) from howdah.attempt where id = $1", made.id) == ["LeaseLost"] * 2
    )


async def test_a_lost_attempt_does_not_finish_its_lease(app, conn):
    """Two jobs of one lease; of the first the node is told that it is lost while the database still has it."""
    gate = asyncio.Event()
    runs: list[int] = []

    @app.task
    async def waits(n: int) -> None:
        runs.append(n)
        if runs.count(n) == 1:
            await gate.wait()

    made = await app.enqueue_many([waits.job(1), waits.job(2)])
    async with node(app) as running_node:
        await eventually(lambda: _both(runs))
        [first, _] = sorted((attempt.job for attempt in running_node.running), key=lambda job: job.id)
        running_node.workers[0].lose_jobs([(first.token, first.id)], "a test says so")
        gate.set()
        rows = [await ended(conn, each.id) for each in made]
    assert [row["state"] for row in rows] == ["done", "done"]
    assert sorted(runs) == [1, 1, 2]
    assert rows[0]["resets"] == 0


async def _both(runs):
    return sorted(runs) == [1, 2]


async def test_a_lease_the_database_took_back_is_lost(app, conn):
    """The negative control: here the handler's transaction finds at its end that the lease is gone."""
    emitted: list[Outcome] = []
    unsubscribe = telemetry.subscribe(lambda name, _facts: emitted.append(name) if name == "job.lost" else None)

    @app.task(transactional=True, max_attempts=1)
    async def charge(tx: Transaction) -> None:
        await conn.execute("select howdah.pause('default')")
        await conn.execute("delete from howdah.lease")

    made = await charge.enqueue()
    async with node(app, heartbeat=60.0, lease=120.0, upkeep=False) as running_node:
        await eventually(lambda: _has_any(emitted))
        await eventually(lambda: _idle(running_node))
    unsubscribe()
    assert emitted.count("job.lost") == 1
    assert await conn.fetchval("select count(*) from howdah.attempt where id = $1", made.id) == 0


async def _has_any(emitted):
    return emitted


async def _idle(running_node):
    return not running_node.running
