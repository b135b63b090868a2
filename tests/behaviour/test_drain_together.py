"""A node that drains ends when jobs, tables and consumers have all come to rest, not one after the other."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Event, Transaction
from kit.node import drain
from table.ddl import ddl

pytestmark = pytest.mark.anyio


async def test_jobs_and_consumers_that_cause_each_other_are_drained_together(app, conn):
    await conn.execute("create table seen (position bigint, who text)")

    @app.task(transactional=True)
    async def step(tx: Transaction, left: int) -> None:
        if left:
            await app.log.append(f"Step-{left}", {"type": "Stepped", "data": {"left": left - 1}}, conn=tx)

    @app.consumer("enqueues")
    async def enqueues(event: Event, *, tx: Transaction) -> None:
        await tx.execute("insert into seen values ($1, 'enqueues')", event.position)
        await step.using(conn=tx).enqueue(event.data["left"])

    @app.consumer("looks", partitions=3)
    async def looks(event: Event, *, tx: Transaction) -> None:
        await tx.execute("insert into seen values ($1, 'looks')", event.position)

    for turn in range(1, 6):
        await step.enqueue(5)
        await drain(app)
        assert await conn.fetchval("select count(*) from seen") == turn * 10
        assert await conn.fetchval("select count(*) from howdah.jobs where state <> 'done'") == 0


async def test_a_worker_that_ends_for_reasons_of_its_own_holds_nobody_up(app, conn):
    await conn.execute("create table seen (position bigint)")

    @app.task
    async def nothing() -> None: ...

    @app.consumer("looks")
    async def looks(event: Event, *, tx: Transaction) -> None:
        await tx.execute("insert into seen values ($1)", event.position)

    await nothing.enqueue()
    await app.log.append("Order-1", {"type": "OrderPlaced"})
    await drain(app, slots=1)
    assert await conn.fetchval("select count(*) from seen") == 1


async def test_a_table_that_has_reached_its_limit_does_not_keep_the_node_from_ending(app, conn):
    await conn.execute(ddl())
    await conn.execute("insert into uploads (process_after) values (now()), (now())")
    table = app.table("uploads", total_jobs=1)
    go = asyncio.Event()

    @table.handler
    async def upload(record: dict) -> None:
        go.set()

    @app.task
    async def later() -> None:
        await go.wait()
        await asyncio.sleep(0.5)  # until the worker of the table has ended

    job = await later.enqueue()
    await drain(app)
    assert await conn.fetchval("select state from howdah.jobs where id = $1", job.id) == "done"
    assert await conn.fetchval("select count(*) from uploads where state = 'completed'") == 1
