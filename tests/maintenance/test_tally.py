"""What finished, by the minute: counted once, whoever listens."""

from __future__ import annotations

import asyncio

import pytest

from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import Retention
from kit.node import drain

pytestmark = pytest.mark.anyio


async def test_two_that_keep_house_in_one_process_count_a_job_once(app, database, conn):
    @app.task
    async def work(n: int) -> None: ...

    stop = asyncio.Event()
    houses = [MaintenanceLoops(database, retention=Retention()) for _ in range(2)]
    running = [asyncio.create_task(house.run(stop)) for house in houses]
    await asyncio.sleep(0)
    await app.enqueue_many(work.job(n) for n in range(10))
    await drain(app)
    stop.set()
    await asyncio.gather(*running)
    assert await conn.fetchval("select sum(jobs) from howdah.tally") == 10


async def test_the_second_counts_when_the_first_has_ended(app, database, conn):
    @app.task
    async def work(n: int) -> None: ...

    first, second = asyncio.Event(), asyncio.Event()
    running = [
        asyncio.create_task(MaintenanceLoops(database, retention=Retention()).run(stop)) for stop in (first, second)
    ]
    await asyncio.sleep(0)
    first.set()
    await running[0]
    await work.enqueue(1)
    await drain(app)
    second.set()
    await running[1]
    assert await conn.fetchval("select sum(jobs) from howdah.tally") == 1
