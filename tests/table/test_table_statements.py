"""Every statement file is a statement as it stands, and is found by an index whatever the statistics say."""

from __future__ import annotations

import re

import pytest

from howdah.errors import ConfigError
from howdah.table.contract import Columns
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.statement import Where, build, read
from table.ddl import ddl

pytestmark = pytest.mark.anyio
NAMES = {
    **dict(Columns().items()),
    "schema": "howdah",
    "namespace": "public",
    "table": "uploads",
    "alias": "u",
    "view_namespace": "public",
    "view": "uploads",
    "view_alias": "u",
    "id_type": "int8",
    "state_type": "text",
    "state_namespace": "pg_catalog",
    "logs_type": "_json",
}


WORK = sorted(verb for verb, text in read().items() if set(re.findall(r"\{'?(\w+)", text)) <= set(NAMES))
"""The statements; files with other names in them make something and are tried by what they make."""


@pytest.mark.parametrize("verb", WORK)
async def test_a_statement_prepares_and_names_its_parameters(conn, verb):
    await conn.execute(ddl())
    text = read()[verb]
    header = "".join(re.findall(r"(?m)^--.*\n", text))
    body = re.sub(r"(?m)^\s*--.*$", "", text)

    await conn.prepare(build(verb, NAMES))
    assert header.startswith(f"-- {verb}: ")
    missing = set(re.findall(r"\$\d+", body)) - set(re.findall(r"\$\d+", header))
    assert not missing, f"the header of {verb}.sql does not name {sorted(missing)}"


HELD = """
select count(*) from pg_locks
where pid = $1 and locktype in ('relation', 'virtualxid') and pid <> pg_backend_pid()
"""


@pytest.mark.parametrize("where", [None, "no such column"])
async def test_checking_a_table_leaves_no_transaction_open(conn, direct, where):
    """A connection of a pool may be used next in an hour, or begin a transaction of another isolation level."""
    await conn.execute(ddl())
    checked = await direct.connect("test")
    try:
        try:
            await TablePlan.make(checked, TableOptions(table="uploads", where=where and Where(where)), "howdah")
        except ConfigError:
            assert where

        assert await conn.fetchval(HELD, checked.get_server_pid()) == 0
        async with checked.transaction(isolation="repeatable_read", readonly=True):
            assert await checked.fetchval("select 1") == 1
    finally:
        await checked.close()


def scans(node):
    yield node
    for child in node.get("Plans", ()):
        yield from scans(child)


async def explain(conn, statement, values):
    """The plan of a prepared statement, made without a look at its values."""
    await conn.execute("set local plan_cache_mode = force_generic_plan")
    await conn.execute(f"prepare looked as {statement}")
    spelled = ", ".join([await conn.fetchval("select quote_nullable($1::text)", literal(value)) for value in values])
    try:
        return await conn.fetchval(f"explain (analyze, format json) execute looked({spelled})")
    finally:
        await conn.execute("deallocate looked")


def literal(value):
    if isinstance(value, list):
        return "{" + ",".join("null" if each is None else str(each) for each in value) + "}"
    return None if value is None else str(value)


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "fresh"])
async def test_no_statement_reads_the_whole_table(app, conn, database, statistics):
    import json

    table = app.table("uploads", order_by=["priority desc", "id"])
    await conn.execute(ddl(extra="priority int not null default 0"))
    await conn.execute("create index on uploads (priority desc, id) where state in ('queued', 'errored')")
    await conn.execute("create index on uploads (last_heartbeat_at) where state = 'processing'")
    await conn.execute("create index on uploads (id) where cancel and state in ('queued', 'errored')")
    await conn.execute("alter table uploads set (autovacuum_enabled = off)")
    if statistics == "of an empty table":
        await conn.execute("analyze uploads")
    await conn.execute(
        "insert into uploads (state, last_heartbeat_at, lease_token)"
        " select case when i % 1000 = 0 then 'processing' when i % 100 = 0 then 'queued' else 'completed' end, now(), i"
        " from generate_series(1, 200000) i"
    )
    if statistics == "fresh":
        await conn.execute("analyze uploads")
    plan = await TablePlan.make(conn, table.options, "howdah")
    ids = tokens = list(range(200, 200_001, 200))
    n = len(ids)
    looks = {
        "claim": (plan.claim(None)[0], (50, "me", 7, [1, 2, 3])),
        "claim some": (plan.claim(None, ids)[0], (50, "me", 7, [], ids)),
        "due": (plan.due(None)[0], (50, None, None, [1, 2, 3])),
        "release": (plan.sql["release"], (tokens, None)),
        "release some": (plan.sql["release"], (tokens, ids)),
        "unconfirmed": (plan.sql["unconfirmed"], (tokens,)),
        "fail": (plan.sql["fail"], (2000, 2000, "m")),
        "silent": (plan.silent(None)[0], (0.5, 100, 30.0, ["a"], [60.0])),
        "watch": (plan.silent(ids)[0], (0.5, 100, 30.0, ["a"], [60.0], ids)),
        "expire": (plan.sql["expire"], (ids, tokens)),
        "read_records": (plan.sql["read_records"], (ids,)),
        "ack": (plan.sql["ack"], (ids, tokens, ["completed"] * n, [None] * n, [None] * n)),
        "heartbeat": (plan.sql["heartbeat"], (ids, tokens)),
        "reset": (plan.sql["reset"], (ids, tokens, [0.0] * n, 0.0, 1e12, 5, "m")),
        "cancel": (plan.sql["cancel"], (100, [], None)),
        "rows_to_cancel": (plan.sql["rows_to_cancel"], (100, [])),
        "log": (plan.sql["log"], (ids, tokens, ["[]"] * n)),
        "ack_in_transaction": (plan.sql["ack_in_transaction"], (2000, 2000)),
    }
    for verb, (statement, values) in looks.items():
        transaction = conn.transaction()
        await transaction.start()
        plan_text = await explain(conn, statement, values)
        await transaction.rollback()
        tree = json.loads(plan_text)[0]["Plan"]
        for node in scans(tree):
            assert node["Node Type"] != "Seq Scan" or "Alias" not in node, (verb, node)
            wasted = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            assert (node["Actual Rows"] + wasted) * node["Actual Loops"] <= 2 * n, (verb, node)
