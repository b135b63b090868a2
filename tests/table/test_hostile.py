"""Names of every kind, in every place a name can be given."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from howdah import Budget, Columns, ConfigError, Howdah, Where
from howdah.postgres.sql import identifier
from howdah.table.contract import NEEDS
from howdah.table.options import TableOptions
from howdah.table.statement import OrderBy, RelationName
from kit.node import drain
from table.ddl import ddl

ROLES = list(NEEDS)
NASTY = [
    'we"ird',
    "it's",
    "; drop table uploads; --",
    "/*<where>*/",
    "/*<order>*/",
    "{id}",
    "{'schema'}",
    "$1",
    "$tag$",
    "select",
    "a b",
    "\\",
    "%s",
    "ünïcode",
    "t",
    "found",
    "ours",
    "told",
    "due",
    "lease",
    "known",
    "r",
    "row",
    "s",
    "CamelCase",
    "x" * 63,
]

name = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=15),
)
# these belong to the server
SYSTEM = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}
names = st.lists(name.filter(lambda n: n not in SYSTEM), min_size=len(ROLES) + 6, max_size=len(ROLES) + 6, unique=True)


async def work(dsn: str, all_names: list[str]) -> None:
    """The whole life of rows in a table where every name is like that."""
    schema, table, view, alias, size, own, *roles = all_names
    schema = f"h_{schema}"[:60].encode()[:60].decode(errors="ignore")
    columns = Columns(**dict(zip(ROLES, roles, strict=True)))
    app = Howdah(dsn)
    conn = await app.database.connect("test")
    quoted = f"{identifier(schema)}.{identifier(table)}"
    through = f"{identifier(schema)}.{identifier(view)}"
    await conn.execute(f"create schema {identifier(schema)}")
    try:
        await conn.execute(ddl(quoted, columns, extra=f"{identifier(size)} int default 1, {identifier(own)} text"))
        await conn.execute(f"create view {through} as select * from {quoted}")
        insert = f"insert into {quoted} ({identifier(own)}) values ($1)"
        await conn.executemany(insert, [(text,) for text in ("ok", "fail", "snooze", "other")])
        made = app.table(
            f"{quoted} as {identifier(alias)}",
            name="hostile",
            view=f"{through} {identifier(alias)}",
            columns=columns,
            order_by=[f"{identifier(alias)}.{identifier(own)} desc nulls last", identifier(columns.id)],
            where=Where(f"{identifier(alias)}.{identifier(own)} <> $1", "other"),
            budget=Budget(memory=100, cost={"memory": size}),
            retry_after=60,
        )

        @made.handler
        async def execute(record):
            with made.log("step") as entry:
                entry.write(record[own])
            if record[own] == "fail":
                raise ValueError

        await drain(app)
        rows = await conn.fetch(
            f"select {identifier(own)} as own, {identifier(columns.state)} as state,"
            f" cardinality({identifier(columns.execution_logs)}) as logs from {quoted}"
        )
        assert {row["own"]: row["state"] for row in rows} == {
            "ok": "completed", "fail": "errored", "snooze": "completed", "other": "queued",
        }  # fmt: skip
        assert sum(row["logs"] or 0 for row in rows) == 3
        await conn.execute(
            f"update {quoted} set {identifier(columns.state)} = 'processing', {identifier(columns.cancel)} = false"
        )
        front = app.node().sources[1]
        pool = await app.database.pool(1)
        from howdah.table.plan import TablePlan
        from howdah.table.store import TableStore

        store = TableStore(app.database, await TablePlan.make(conn, front._options, "howdah"), pool=pool)
        await conn.execute(f"update {quoted} set {identifier(columns.last_heartbeat_at)} = 'epoch'")
        assert await store.reset(10) == (4, 0)
        await conn.execute(f"update {quoted} set {identifier(columns.cancel)} = true")
        assert await store.cancel(10) == 4
        await store.close()
        pool.terminate()
    finally:
        await conn.execute(f"drop schema {identifier(schema)} cascade")
        await conn.close()


@pytest.mark.superuser("makes schemas")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names)
def test_any_name_can_be_any_name(database, names):
    asyncio.run(work(database.dsn, names))


@pytest.mark.superuser("makes schemas")
def test_the_nastiest_names_all_at_once(database):
    for shift in range(0, len(NASTY), 4):
        turned = NASTY[shift:] + NASTY[:shift]
        asyncio.run(work(database.dsn, turned[: len(ROLES) + 6]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b.c",
        "uploads; drop table x",
        "uploads u v",
        "(select 1)",
        'a"b',
        "uploads where true",
        "1a",
        "a-b",
        None,
        "a\0b",
    ],
)
def test_what_is_no_name_is_refused(text):
    with pytest.raises(ConfigError):
        TableOptions(table=text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id; drop table x",
        "id desc, n",
        "random()",
        "id desc nulls",
        "1",
        "(id)",
        "id using >",
        "id desc desc",
        "a.b.c",
    ],
)
def test_what_is_no_order_is_refused(text):
    with pytest.raises(ConfigError, match="order by"):
        OrderBy.parse(text)


@pytest.mark.parametrize(
    ("text", "parts", "alias"),
    [
        ("Uploads", ("uploads",), "uploads"),
        ('App."Up loads" AS U', ("app", "Up loads"), "u"),
        ('"a.b"."c""d" "e f"', ("a.b", 'c"d'), "e f"),
    ],
)
def test_names_are_read_as_sql_reads_them(text, parts, alias):
    assert RelationName.parse(text) == RelationName(parts, alias)


@pytest.mark.parametrize(
    ("text", "values", "words"),
    [
        ("", (), "condition"),
        ("a = 1) or (true", (), "parentheses"),
        ("(a = 1", (), "parentheses"),
        ("a = $1", (), "no values"),
        ("a = $2", (1, 2), "each of"),
        ("a = '$1'", (1,), "each of"),
        ("a = 1 -- $1", (1,), "each of"),
    ],
)
def test_a_where_that_cannot_be_is_refused(text, values, words):
    with pytest.raises(ConfigError, match=words):
        Where(text, *values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = $1 and b = $2 and c = $1", "a = $6 and b = $7 and c = $6"),
        ("a = '$1' and b = $1 and \"$2\" = $2", "a = '$1' and b = $6 and \"$2\" = $7"),
        ("a = $$x $1$$ and b in ($1, $2)", "a = $$x $1$$ and b in ($6, $7)"),
        ("a = $t$ $1 $$ $2 $t$ and b in ($1, $2)", "a = $t$ $1 $$ $2 $t$ and b in ($6, $7)"),
        ("a = E'it\\'s $1' and b in ($1, $2) /* $3 ( */", "a = E'it\\'s $1' and b in ($6, $7) /* $3 ( */"),
    ],
)
def test_parameters_are_counted_on(text, expected):
    assert Where(text, 1, 2).numbered(5) == expected
