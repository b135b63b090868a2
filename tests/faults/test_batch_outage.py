"""A server that crashes in the middle of a batch: nothing is charged, and the effects are there once."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from faults.test_outages import FLUSHED, LEASE, OUTAGE, outcomes, single  # noqa: F401 - a fixture
from howdah import Howdah, Transaction
from howdah_lab.torture.servers.single import Single
from kit.node import EVENTUALLY_TIMEOUT, node

pytestmark = pytest.mark.anyio


async def test_a_crash_of_the_server_charges_no_job_of_a_batch(single: Single) -> None:  # noqa: F811
    app, begun, calls = Howdah(single.dsn), asyncio.Event(), []
    conn = await asyncpg.connect(single.dsn)
    await conn.execute("create table ledger (n int)")
    await conn.close()

    @app.task(batch=10, transactional=True, max_attempts=1)
    async def note(tx: Transaction, n: list[int]) -> None:
        calls.append(n)
        await tx.execute("insert into ledger select unnest($1::int[])", n)
        if len(calls) == 1:
            begun.set()
            await asyncio.sleep(FLUSHED + 0.5)
            await tx.execute("select 1")

    @app.task(batch=10, max_attempts=1)
    async def wait(n: list[int]) -> None:
        await asyncio.sleep(LEASE / 2)

    await app.enqueue_many(task.job(n) for task in (note, wait) for n in range(4))
    async with node(app, lease=LEASE, heartbeat=1.0):
        await asyncio.wait_for(begun.wait(), EVENTUALLY_TIMEOUT)
        await asyncio.sleep(FLUSHED)
        await single.stop_immediately()
        await asyncio.sleep(OUTAGE / 2)
        await single.start()
        found = await outcomes(single, 8)
    await app.close()

    assert found == {("note", "done", 1, 0): 4, ("wait", "done", 1, 0): 4}
    conn = await asyncpg.connect(single.dsn)
    assert [row[0] for row in await conn.fetch("select n from ledger order by n")] == [0, 1, 2, 3]
    await conn.close()
    assert calls[0] == [0, 1, 2, 3]
