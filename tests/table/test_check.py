"""`table check`: what a table lacks is found, and the statements that add it are enough."""

from __future__ import annotations

from typing import Any

import pytest

from howdah import Columns, Where
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from howdah.table import ddl
from howdah.table.check import TableReport, examine
from howdah.table.options import TableOptions
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio

HOSTILE = "up\"lo'ads; drop table x --\n$howdah$ {schema} /*<where>*/ ü"
REMAPPED = Columns(**{role: f"{role} \"of' mine" for role, _ in Columns().items()})


def options(table: str = "uploads", **settings: Any) -> TableOptions:
    return TableOptions(table=table, **settings)


def where(report: TableReport) -> list[str]:
    return [finding.where for finding in report.findings]


async def mend(conn: Any, database: Database, chosen: TableOptions) -> TableReport:
    """Run what the check says, twice, and check again."""
    report = await examine(database, chosen)
    assert all(finding.sql for finding in report.findings), report.findings
    for statement in [sql for finding in report.findings for sql in finding.sql]:
        await conn.execute(statement)
    for statement in [sql for finding in report.findings for sql in finding.sql if " if not exists " in sql]:
        await conn.execute(statement)
    return await examine(database, chosen)


async def create(conn: Any, chosen: TableOptions) -> None:
    for statement in ddl.create(chosen):
        await conn.execute(statement)


@pytest.mark.parametrize(
    "chosen",
    [
        options(),
        options(columns=REMAPPED),
        options(identifier(HOSTILE), name="hostile", columns=REMAPPED, order_by=[identifier('a "b') + " desc"]),
        options(order_by=["priority desc nulls last", "queued_at"]),
        options(order_by=["id desc", "priority"]),
        options("x" * 63),
    ],
    ids=["plain", "remapped", "hostile", "ordered", "id first", "longest name"],
)
async def test_a_table_as_printed_is_accepted_at_once(conn: Any, database: Database, chosen: TableOptions) -> None:
    await create(conn, chosen)

    report = await examine(database, chosen)
    assert report.findings == []
    assert [name.rpartition("_")[2] for name in report.reads] == ["waiting"]


@pytest.mark.parametrize("columns", [Columns(), REMAPPED], ids=["plain", "remapped"])
@pytest.mark.parametrize("name", ["uploads", HOSTILE, "ü" * 31], ids=["plain", "hostile", "long"])
async def test_everything_a_bare_table_lacks_is_added(
    conn: Any, database: Database, name: str, columns: Columns
) -> None:
    await conn.execute(f"create table {identifier(name)} (n int primary key)")
    chosen = options(identifier(name), name="it", columns=columns, order_by=["n"])

    assert len((await examine(database, chosen)).findings) == len(columns.items()) + 3
    assert (await mend(conn, database, chosen)).findings == []


async def test_a_table_that_is_not_there_is_printed(conn: Any, database: Database) -> None:
    report = await examine(database, options("nowhere"))

    assert [(f.where, f.what) for f in report.findings] == [("table", "table nowhere does not exist")]
    assert (await mend(conn, database, options("nowhere"))).findings == []


async def test_a_view_cannot_be_worked_on(conn: Any, database: Database) -> None:
    await conn.execute("create view seen as select 1 as id")

    report = await examine(database, options("seen"))
    assert [finding.what for finding in report.findings] == ["public.seen is not a table"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("alter column state type varchar(10)", ("column 'state'", "limited in length")),
        ("alter column started_at type timestamp", ("column 'started_at'", "is timestamp, it must be timestamptz")),
        ("alter column num_failures drop default, alter num_failures type text", ("column 'num_failures'", "is text")),
        ("alter column num_resets drop default", ("column 'num_resets'", "has no default")),
        ("alter column state drop default", ("column 'state'", "has no default")),
        ("alter column state drop not null, alter state drop default", ("column 'state'", "has no default")),
        (
            "alter column process_after set not null",
            ("column 'process_after'", "is not null, but null must be allowed"),
        ),
        ("alter column lease_token type int", ("column 'lease_token'", "is integer, it must be bigint")),
        ("drop column lease_token", ("column 'lease_token'", "has no column 'lease_token'")),
        ("drop column cancel", ("column 'cancel'", "has no column 'cancel'")),
        ("drop constraint uploads_pkey", ("column 'id'", "is not unique")),
        ("add check (state in ('queued', 'processing', 'done'))", ("constraint 'uploads_state_check'", "errored")),
    ],
)
async def test_one_thing_wrong_is_named_and_mended(
    conn: Any, database: Database, change: str, found: tuple[str, str]
) -> None:
    await create(conn, options())
    await conn.execute(f"alter table uploads {change}")

    report = await examine(database, options())
    [finding] = [finding for finding in report.findings if not finding.where.startswith("index")]
    assert finding.where == found[0]
    assert found[1] in finding.what
    assert (await mend(conn, database, options())).findings == []


async def test_an_enum_that_lacks_states_gets_them(conn: Any, database: Database) -> None:
    await conn.execute("create type phase as enum ('queued', 'completed')")
    await conn.execute("create table uploads (id bigint primary key, state phase not null default 'queued')")

    assert "the enum of column 'state' of table public.uploads has no processing, errored, failed, canceled" in [
        finding.what for finding in (await examine(database, options())).findings
    ]
    assert (await mend(conn, database, options())).findings == []


async def test_what_statements_cannot_mend_is_left_to_people(conn: Any, database: Database) -> None:
    await create(conn, options())
    await conn.execute("alter table uploads drop column queued_at, alter execution_logs type text using null")
    await conn.execute("alter table uploads add queued_at timestamptz generated always as (started_at) stored")

    findings = {finding.where: finding for finding in (await examine(database, options())).findings}
    assert "is generated" in findings["column 'queued_at'"].what
    assert findings["column 'queued_at'"].sql == ()
    assert "it must be json[] or jsonb[]" in findings["column 'execution_logs'"].what
    assert findings["column 'execution_logs'"].sql == []


async def test_a_partitioned_table_is_checked_and_mended(conn: Any, database: Database) -> None:
    await conn.execute("create table uploads (n int, region text) partition by list (region)")
    await conn.execute("create table uploads_eu partition of uploads for values in ('eu')")
    await conn.execute("create table uploads_us partition of uploads for values in ('us')")
    await conn.execute("insert into uploads values (1, 'eu'), (2, 'us')")

    assert (await mend(conn, database, options())).findings == []
    await conn.execute("drop index uploads_waiting")
    assert where(await examine(database, options())) == ["index for claims"]


@pytest.mark.parametrize(
    ("order_by", "index", "good"),
    [
        ([], "(id) where state in ('queued', 'errored')", True),
        ([], "(id desc) where state = 'errored' or state = 'queued'", True),
        ([], "(id) where state in ('queued', 'errored', 'processing')", True),
        ([], "(id) where state <> 'completed'", True),
        ([], "(id)", False),
        ([], "(state, id)", False),
        ([], "(id) where state = 'queued'", False),
        ([], "(id) where state in ('queued', 'errored') and n > 5", False),
        ([], "(id) where kind in ('queued', 'errored')", False),
        (["n desc"], "(n desc) where state in ('queued', 'errored')", True),
        (["n desc"], "(n) where state in ('queued', 'errored')", True),
        (["n desc nulls last"], "(n desc) where state in ('queued', 'errored')", False),
        (["n", "id"], "(id, n) where state in ('queued', 'errored')", False),
    ],
)
async def test_the_index_for_claims_must_hold_what_waits_in_order(
    conn: Any, database: Database, order_by: list[str], index: str, good: bool
) -> None:
    await create(conn, options())
    await conn.execute("alter table uploads add n int, add kind text")
    await conn.execute("drop index uploads_waiting")
    await conn.execute(f"create index mine on uploads {index}")
    await conn.execute("insert into uploads (state, n) select 'completed', i from generate_series(1, 10000) i")
    await conn.execute("analyze uploads")

    found = where(await examine(database, options(order_by=order_by)))
    assert found == ([] if good else ["index for claims"])


async def test_an_index_under_the_name_we_would_give_is_stepped_around(conn: Any, database: Database) -> None:
    await create(conn, options())
    await conn.execute("drop index uploads_waiting")
    await conn.execute("create index uploads_waiting on uploads (queued_at)")

    assert (await mend(conn, database, options())).reads[0] == "uploads_waiting2"


async def test_options_that_do_not_fit_the_table_are_named(conn: Any, database: Database) -> None:
    await create(conn, options())

    [finding] = (await examine(database, options(where=Where("size < $1", 5)))).findings
    assert finding.where == "options"
    assert 'column "size" does not exist' in finding.what
    [finding] = (await examine(database, options(view="nothing"))).findings
    assert finding.what == "view nothing does not exist"
    await conn.execute("create view names as select id as number from uploads")
    [finding] = (await examine(database, options(view="names"))).findings
    assert finding.what == "view public.names has no column 'id', which identifies records"


async def test_a_schema_that_is_not_there_is_named(conn: Any, database: Database) -> None:
    await create(conn, options())

    [finding] = (await examine(Database(database.dsn, schema="other"), options())).findings
    assert (finding.where, finding.fix) == ("schema", "run `howdah migrate`")


@pytest.mark.parametrize("name", ["uploads", HOSTILE], ids=["plain", "hostile"])
async def test_the_trigger_wakes_a_node_for_work_and_for_nothing_else(
    app: Any, conn: Any, database: Database, direct: Database, name: str
) -> None:
    table = app.table(identifier(name), name="it", columns=REMAPPED, notify=True, poll=60)
    await create(conn, table.options)
    [finding] = (await examine(database, table.options)).findings
    assert finding.where == "trigger"
    for _ in range(2):
        await conn.execute(finding.sql[0])
    assert (await examine(database, table.options)).findings == []

    seen: list[int] = []

    @table.handler
    async def execute(record: dict[str, Any]) -> None:
        seen.append(record[REMAPPED.id])

    quoted, state, after = identifier(name), identifier(REMAPPED.state), identifier(REMAPPED.process_after)
    listener = await direct.connect("test")
    rung: list[str] = []
    [channel] = {ddl.channel(f'"public".{quoted}')}
    await listener.add_listener(channel, lambda *heard: rung.append(heard[-1]))
    async with node(app) as running_node:

        async def hears() -> bool:
            return any(getattr(front, "_listener", None) and not front._listener.deaf for front in running_node.open)

        async def worked() -> bool:
            return len(seen) == len(expected)

        await eventually(hears)
        await conn.execute(f"insert into {quoted} default values")
        expected = [1]
        await eventually(worked)
        await conn.execute(f"update {quoted} set {state} = 'queued'")
        expected = [1, 1]
        await eventually(worked)
        await conn.execute(f"insert into {quoted} ({state}, {after}) values ('queued', now() + interval '1 hour')")
        await conn.execute(f"update {quoted} set {after} = null where {state} = 'queued'")
        expected = [1, 1, 2]
        await eventually(worked)

    await listener.fetchval("select 1")
    await listener.close()
    assert seen == expected
    # two inserts, two updates; claims, heartbeats and acks ring for nobody
    assert [payload for payload in rung if not payload.startswith("?")] == [""] * 4


async def test_rows_of_a_mended_table_are_worked_on(app: Any, conn: Any, database: Database) -> None:
    await conn.execute("create table uploads (n int)")
    await conn.execute("insert into uploads select generate_series(1, 3)")
    table = app.table("uploads")
    await mend(conn, database, table.options)

    @table.handler
    async def execute(record: dict[str, Any]) -> None: ...

    await drain(app)
    assert await conn.fetch("select state, count(*) from uploads group by state") == [("completed", 3)]
