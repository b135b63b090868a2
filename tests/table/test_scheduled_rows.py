"""Rows that are scheduled for later cost no reads, if there is an index that finds the due ones."""

from __future__ import annotations

import json

import pytest

from howdah.table.check import examine
from howdah.table.ddl import concurrently, script
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.store import TableStore
from kit.node import drain
from table.ddl import ddl
from table.test_table_statements import explain, scans

pytestmark = pytest.mark.anyio

FUTURE = 20_000
WAITING = "create index on uploads (priority desc, id) where state in ('queued', 'errored')"
DUE = "create index on uploads (process_after) where state in ('queued', 'errored')"


@pytest.fixture
async def scheduled(conn):
    """A table with many rows for tomorrow, before which two rows are due."""
    await conn.execute(ddl(extra="n int, priority int not null default 0"))
    await conn.execute("alter table uploads set (autovacuum_enabled = off)")
    await conn.execute(WAITING)
    await conn.execute("create index on uploads (id) where state = 'processing'")
    await conn.execute("create index on uploads (id) where cancel and state in ('queued', 'errored')")

    async def fill(*indexes: str, analyze: str = "") -> None:
        for index in indexes:
            await conn.execute(index)
        if analyze == "empty":
            await conn.execute("analyze uploads")
        await conn.execute(
            "insert into uploads (priority, process_after) select 9, now() + interval '1 day'"
            f" from generate_series(1, {FUTURE})"
        )
        await conn.execute("insert into uploads (n, priority) values (1, 0), (2, 5)")
        await conn.execute("insert into uploads (n, priority, process_after) values (3, 3, now() - interval '1 s')")
        if analyze == "fresh":
            await conn.execute("analyze uploads")

    return fill


def read_rows(plan: str) -> int:
    """Rows that all scans of a plan read, also those that a filter removed."""
    nodes = [node for node in scans(json.loads(plan)[0]["Plan"]) if "Scan" in node["Node Type"]]
    return sum((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in nodes)


@pytest.mark.parametrize("analyze", ["", "empty", "fresh"])
async def test_a_claim_reads_only_the_due_rows(conn, scheduled, analyze):
    await scheduled(DUE, analyze=analyze)
    plan = await TablePlan.make(conn, TableOptions(table="uploads", order_by=["priority desc"]), "howdah")
    assert plan.lists_due

    statement, values = plan.list_due(None)
    async with conn.transaction():
        for name in ("enable_seqscan", "enable_bitmapscan"):
            await conn.execute(f"set local {name} = off")
        listing = await explain(conn, statement, [100, None, None, [], *values])
    ids = (await conn.fetchrow(statement, 100, None, None, [], *values))["ids"]
    statement, values = plan.claim(None, ids)
    transaction = conn.transaction()
    await transaction.start()
    for name in ("enable_seqscan", "enable_bitmapscan"):
        await conn.execute(f"set local {name} = off")
    claiming = await explain(conn, statement, [10, "me", 1, [], *values])
    await transaction.rollback()

    assert [await conn.fetchval("select n from uploads where id = $1", id) for id in ids] == [2, 3, 1]
    assert read_rows(listing) < 100
    assert read_rows(claiming) < 100


async def test_rows_are_claimed_in_order_with_and_without_the_index(app, conn, scheduled):
    await scheduled(DUE)
    table = app.table("uploads", order_by=["priority desc"], slots=1)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])

    await drain(app)

    assert seen == [2, 3, 1]
    assert await conn.fetchval("select count(*) from uploads where state = 'queued'") == FUTURE


async def test_more_due_rows_than_are_listed_are_claimed_in_the_order_of_the_table(
    app, conn, scheduled, database, monkeypatch
):
    monkeypatch.setattr("howdah.table.claim.MOST_LISTED", 10)
    await scheduled(DUE)
    await conn.execute("insert into uploads (n, priority) select i, i from generate_series(100, 139) i")
    plan = await TablePlan.make(conn, TableOptions(table="uploads", order_by=["priority desc"]), "howdah")
    pool = await database.pool(2)
    store = TableStore(database, plan, pool=pool)

    claimed = [job.id for job in await store.claim(5, {})]

    assert await conn.fetch("select n from uploads where id = any($1) order by n desc", claimed) == [
        (139,), (138,), (137,), (136,), (135,)
    ]  # fmt: skip
    await store.close()
    pool.terminate()


async def test_the_check_names_the_missing_index_if_many_rows_are_scheduled(conn, database, scheduled):
    await scheduled()
    options = TableOptions(table="uploads", order_by=["priority desc"], notify=False)

    [finding] = (await examine(database, options)).findings
    assert finding.where == "index for scheduled rows"
    assert "1,000 or more rows of table public.uploads are scheduled for later" in finding.what
    await conn.execute(finding.sql[0])

    assert (await examine(database, options)).findings == []


async def test_missing_indexes_can_be_created_without_locking_writes(conn, database):
    await conn.execute(ddl())
    report = await examine(database, TableOptions(table="uploads", notify=False))

    text = concurrently(script([statement for finding in report.findings for statement in finding.sql]))

    assert text.count("create index concurrently if not exists") == 3
    for statement in text.split(";\n")[:-1]:
        await conn.execute(statement)
    assert (await examine(database, TableOptions(table="uploads", notify=False))).findings == []
