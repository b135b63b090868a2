"""The doctor looks at tables of the application's: what they lack is found, and its fix is one statement that works."""

from __future__ import annotations

from typing import Any

import pytest

from howdah import Columns, Where
from howdah.diagnose import doctor
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.finding import Finding
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from howdah.table import ddl
from howdah.table.options import TableOptions

pytestmark = pytest.mark.anyio

HOSTILE = "up\"lo'ads; drop table x -- ü"
LIVE = "insert into howdah.node (name, kinds) values ('a:1', array[$1])"


async def examine(database: Database, *tables: TableOptions) -> list[Finding]:
    return [each for each in await Doctor(database, tables).examine() if each.name == "tables"]


async def create(conn: Any, options: TableOptions) -> None:
    for statement in ddl.create(options):
        await conn.execute(statement)


async def test_without_an_app_nothing_is_said_of_tables(database: Database) -> None:
    assert await examine(database) == []


async def test_a_table_that_has_all_it_needs(database: Database, conn: Any) -> None:
    options = TableOptions(table="uploads", order_by=["priority desc", "id"])
    await create(conn, options)
    await conn.execute("insert into uploads (priority) values (1)")
    await conn.execute(LIVE, "uploads")

    [well] = await examine(database, options)

    assert (well.verdict, well.fact, well.fix) == ("ok", "uploads: a claim reads uploads_waiting", None)


@pytest.mark.parametrize(
    "options",
    [
        TableOptions(table="uploads"),
        TableOptions(table="uploads", order_by=["priority desc", "id"], where=Where("priority < $1", 5)),
        TableOptions(table=identifier(HOSTILE), name="hostile", columns=Columns(state='the "state"')),
    ],
    ids=["plain", "ordered", "hostile"],
)
@pytest.mark.parametrize("what", ["waiting", "processing", "cancel"])
async def test_an_index_that_is_missing(database: Database, conn: Any, options: TableOptions, what: str) -> None:
    await create(conn, options)
    await conn.execute(f"drop index {identifier(ddl.index_name(options.relation.parts[-1], what))}")

    [missing] = await examine(database, options)
    assert missing.fix is not None
    await conn.execute(missing.fix)
    [well] = await examine(database, options)

    assert missing.verdict == "warn"
    assert options.name in missing.fact
    assert missing.fix.startswith("create index concurrently if not exists ")
    assert "\n" not in missing.fix
    assert well.verdict == "ok"


async def test_an_index_in_another_order_is_not_the_one(database: Database, conn: Any) -> None:
    await create(conn, TableOptions(table="uploads", order_by=["priority"]))

    [found] = await examine(database, TableOptions(table="uploads", order_by=["priority desc", "id"]))

    assert found.fact == "no index of table public.uploads covers just the waiting rows, in the order of the claim"
    assert found.fix is not None
    assert '"priority" desc nulls last' in found.fix or '"priority" desc' in found.fix


async def test_an_index_of_a_partitioned_table_is_made_as_that_allows(database: Database, conn: Any) -> None:
    options = TableOptions(table="uploads")
    create_table, *indexes = ddl.create(options)
    await conn.execute(create_table.replace(" primary key", "") + " partition by hash (id)")
    await conn.execute("create table uploads_0 partition of uploads for values with (modulus 1, remainder 0)")
    await conn.execute("create index on uploads (id)")
    for statement in indexes[1:]:
        await conn.execute(statement)

    [missing] = await examine(database, options)
    assert missing.fix is not None
    await conn.execute(missing.fix)
    [well] = await examine(database, options)

    assert missing.fix.startswith("create index if not exists ")
    assert well.verdict == "ok"


async def test_a_table_that_cannot_be_worked_on(database: Database, conn: Any) -> None:
    options = TableOptions(table="uploads")
    await create(conn, options)
    await conn.execute("alter table uploads drop column process_after")
    lacks, *_ = await examine(database, options)
    [missing] = await examine(database, TableOptions(table="downloads"))

    assert (lacks.verdict, lacks.fact) == ("bad", "table public.uploads has no column 'process_after'")
    assert lacks.fix is not None
    assert lacks.fix.endswith("`howdah table check uploads --sql` prints the statements")
    assert (missing.verdict, missing.fact) == ("bad", "table downloads does not exist")


async def test_rows_no_node_takes(database: Database, conn: Any) -> None:
    options = TableOptions(table="uploads")
    await create(conn, options)
    await conn.execute("insert into uploads default values")
    await conn.execute("insert into uploads (process_after) values (now() + interval '1 hour')")

    [unserved] = await examine(database, options)
    await conn.execute(LIVE, "other")
    [still] = await examine(database, options)
    await conn.execute(LIVE, "uploads")
    [served] = await examine(database, options)

    assert (unserved.verdict, unserved.fix) == ("warn", "start a worker with this table")
    assert unserved.fact.startswith("uploads: no live node processes 1 due rows; the oldest has waited for ")
    assert (still.verdict, served.verdict) == ("warn", "ok")


async def test_rows_nobody_takes_back(database: Database, conn: Any) -> None:
    options = TableOptions(table="uploads", stalled_after=30)
    await create(conn, options)
    silent = "insert into uploads (state, last_heartbeat_at) values ('processing', now() - $1::float8 * interval '1 s')"

    await conn.execute(silent, 80.0)
    [soon] = await examine(database, options)
    await conn.execute(silent, 600.0)
    [stuck] = await examine(database, options)

    assert soon.verdict == "ok"
    assert (stuck.verdict, stuck.fact) == (
        "bad",
        "uploads: no node resets 1 rows whose worker has sent no heartbeat for 10 min",
    )


async def test_a_table_that_is_locked_does_not_hide_the_next(
    database: Database, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECK_TIMEOUT", 0.3)
    monkeypatch.setattr(database, "command_timeout", 2.0)
    locked, free = TableOptions(table="locked"), TableOptions(table="free")
    for options in (locked, free):
        await create(conn, options)

    async with conn.transaction():
        await conn.execute("lock table locked in access exclusive mode")
        first, second = await examine(database, locked, free)

    assert first.verdict == "warn"
    assert first.fact.startswith("could not be examined")
    assert second.verdict == "ok"
