"""Tables with a batch: one call for many rows, with an outcome of its own for each of them."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Budget, Cancel, ConfigError, Outcome, Snooze, Transaction
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("bad", [set(), {1}, {4, 5, 12}, set(range(1, 21))], ids=lambda bad: str(sorted(bad)))
async def test_halving_charges_exactly_the_rows_that_fail(app, conn, uploads, rows, bad, transactional):
    await conn.execute("create table ledger (n int)")
    table = app.table("uploads", batch=50, transactional=transactional, max_attempts=1)
    calls = []

    async def execute(records):
        numbers = [record["n"] for record in records]
        calls.append(len(numbers))
        if bad & {*numbers}:
            raise RuntimeError("bad")

    async def within(records, tx: Transaction):
        await tx.executemany("insert into ledger values ($1)", [(record["n"],) for record in records])
        await execute(records)

    table.handler(within if transactional else execute)
    await rows.add(20)
    await drain(app)

    assert await rows.states() == ["failed" if n in bad else "completed" for n in range(1, 21)]
    assert calls[0] == 20
    assert len(calls) <= 1 + 10 * len(bad)
    if transactional:
        written = [row[0] for row in await conn.fetch("select n from ledger order by n")]
        assert written == [n for n in range(1, 21) if n not in bad]


async def test_each_row_has_an_outcome_of_its_own_and_its_hooks(app, conn, uploads, rows):
    table = app.table("uploads", batch=10, max_attempts=1)
    seen = []

    @table.handler
    class Handler:
        def before_execute(self, record):
            seen.append(("before", record["n"]))

        def execute(self, records):
            seen.append([record["n"] for record in records])
            return [None, Snooze(100), Cancel("no"), ValueError("bad")]

        def after_execute(self, record, outcome):
            seen.append((outcome, record["n"]))

    await rows.add(4)
    await drain(app)

    assert await rows.states() == ["completed", "queued", "canceled", "failed"]
    assert seen == [
        *(("before", n) for n in range(1, 5)),
        [1, 2, 3, 4],
        (Outcome.OK, 1),
        (Outcome.SNOOZED, 2),
        (Outcome.CANCELLED, 3),
        (Outcome.FAILED, 4),
    ]


async def test_a_budget_is_freed_after_a_batch(app, conn, rows):
    from table.ddl import ddl

    await conn.execute(ddl(extra="n int, memory int not null default 10"))
    budget = Budget(memory=50, cost={"memory": "memory"})
    table = app.table("uploads", batch=10, budget=budget)
    calls = []

    @table.handler
    async def execute(records):
        calls.append(len(records))

    await rows.add(20)
    await drain(app)

    assert await rows.states() == ["completed"] * 20
    assert max(calls) <= 5


async def test_a_row_that_is_lost_leaves_the_batch_and_the_others_commit(app, conn, uploads, rows):
    await conn.execute("create table ledger (n int)")
    table = app.table("uploads", batch=10, transactional=True)
    inside, gate, calls = asyncio.Event(), asyncio.Event(), []

    @table.handler
    async def execute(records, tx: Transaction):
        calls.append([record["n"] for record in records])
        await tx.executemany("insert into ledger values ($1)", [(record["n"],) for record in records])
        inside.set()
        if len(calls) == 1:
            await gate.wait()

    await rows.add(3)
    async with node(app, upkeep=False, heartbeat=60.0, lease=120.0):
        await asyncio.wait_for(inside.wait(), 30)
        await rows.set(2, state="canceled")
        gate.set()

        async def over():
            return await rows.states() == ["completed", "canceled", "completed"]

        await eventually(over)

    assert calls == [[1, 2, 3], [1, 3]]
    assert [row[0] for row in await conn.fetch("select n from ledger order by n")] == [1, 3]


async def test_a_row_whose_update_is_dropped_fails_alone(app, conn, uploads, rows):
    await conn.execute(
        """
        create function drop_two() returns trigger language plpgsql as $$
        begin
            return case when new.n = 2 and new.state = 'completed' then null else new end;
        end $$;
        create trigger drop_two before update on uploads for each row execute function drop_two()
        """
    )
    table = app.table("uploads", batch=10, transactional=True)

    @table.handler
    async def execute(records, tx: Transaction):
        await tx.execute("select 1")

    await rows.add(3)
    await drain(app)

    assert await rows.states() == ["completed", "failed", "completed"]


async def test_a_batch_in_processes_is_rejected(app):
    with pytest.raises(ConfigError, match="batch"):

        @app.table("uploads", batch=10).handler(executor="process")
        class Handler:
            def execute(self, records): ...

    with pytest.raises(ConfigError, match="within but no batch"):
        app.table("others", within=1.0)
