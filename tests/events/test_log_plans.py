"""Every hot statement of the log with a million events behind it.

What is asserted is work, not time: how many pages a statement touches, and that it never walks the log. Both with the
settings of our own connections and with the server's defaults, as behind a pooler; and with statistics that were taken
when the log was empty.
"""

from __future__ import annotations

import json
import os
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql as names

from howdah.events.read import WINDOW
from howdah.postgres import sql
from howdah.postgres.database import Database

pytestmark = pytest.mark.anyio

EVENTS, STREAMS = 1_000_000, 20_000
END = 2**63 - 1
EXPLAIN = "explain (analyze, buffers, timing off, format json)"

FILL = f"""
insert into howdah.event (stream_type, stream_id, version, type, data)
    select case when s % 10 = 0 then 'Customer' else 'Order' end, s::text, v, 'Type' || v % 10, '{{"n": 1}}'
    from generate_series(1, {EVENTS // STREAMS}) v, generate_series(1, {STREAMS}) s;
insert into howdah.consumer (name, partitions) select 'c' || g, 4 from generate_series(1, 200) g;
insert into howdah.consumer_partition (consumer, part, node, epoch)
    select 'c' || g, p, 1, 1 from generate_series(1, 200) g, generate_series(0, 3) p;
insert into howdah.checkpoint (consumer, part, position)
    select 'c' || g, p, 500000 from generate_series(1, 200) g, generate_series(0, 3) p;
"""
STALE = {"analyzed": False, "stale": True}


@pytest.fixture(scope="module", params=STALE)
def big(server: Any, template: str, request: pytest.FixtureRequest):
    """A database with a long log."""
    name = f"howdah_log_{request.param}_{os.getpid()}"
    database, copy = names.Identifier(name), names.Identifier(template)
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(names.SQL("create database {} template {}").format(database, copy))
        with psycopg.connect(server.dsn_for(name), autocommit=True) as fill:
            if STALE[request.param]:
                fill.execute("alter table howdah.event set (autovacuum_enabled = off)")
                fill.execute("analyze")
            fill.execute(FILL)
            if not STALE[request.param]:
                fill.execute("vacuum analyze")
        yield Database(server.dsn_for(name))
        conn.execute(names.SQL("drop database {} with (force)").format(database))


@pytest.fixture(params=["our settings", "server defaults"])
async def explain(big: Database, request: pytest.FixtureRequest):
    """Runs a statement and tells its plan and the pages it touched; what it did is rolled back."""
    ours = request.param == "our settings"
    conn = await (big.connect("plans") if ours else asyncpg.connect(big.dsn, statement_cache_size=0))
    statements = sql.load("howdah.events", schema="howdah")

    run = await conn.fetchval("select howdah.begin_run()")

    async def explain(verb: str, *args: Any) -> tuple[dict[str, Any], int]:
        args = tuple(run if arg is RUN else arg for arg in args)
        for _ in range(2):  # the first call also reads the catalogue
            transaction = conn.transaction()
            await transaction.start()
            if ours:  # a plain explain would know the arguments; our connections plan without
                await conn.execute(f"prepare hot as {statements[verb]}")
                row = await conn.fetchrow(f"{EXPLAIN} execute hot({', '.join(map(quoted, args))})")
                await conn.execute("deallocate hot")
            else:
                row = await conn.fetchrow(f"{EXPLAIN} {statements[verb]}", *args)
            await transaction.rollback()
        plan = json.loads(row[0])[0]["Plan"]
        return plan, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    yield explain
    await conn.close()


def walks(plan: dict[str, Any]) -> bool:
    """Whether a plan reads the log from end to end, or sorts what it read."""
    here = plan.get("Relation Name") == "event" and plan["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")
    return here or plan["Node Type"] == "Sort" or any(map(walks, plan.get("Plans", [])))


def quoted(value: Any) -> str:
    return names.Literal(value).as_string(None)


MIDDLE = 500_000
RUN: Any = object()
"""Stands for the run of the server, where a statement takes it."""


async def test_follow(explain):
    plan, pages = await explain("follow", MIDDLE, EVENTS, 1000, RUN)
    assert not walks(plan)
    assert plan["Actual Rows"] == 1000
    assert pages < 60


async def test_follow_of_nothing(explain):
    plan, pages = await explain("follow", EVENTS, EVENTS, 1000, RUN)
    assert not walks(plan)
    assert pages < 10


@pytest.mark.parametrize(
    ("scope", "most"),
    [
        ((None, None, 1, 4), 120),
        ((["Customer"], None, 0, 1), 300),
        ((None, ["Type3"], 0, 1), 1200),
        ((["Customer"], ["Type3", "Type4"], 3, 4), 1200),
        ((["Nobody"], None, 0, 1), 1200),
    ],
    ids=str,
)
async def test_follow_with_a_scope(explain, scope, most):
    """At worst it looks through one window."""
    plan, pages = await explain("follow_scoped", MIDDLE, MIDDLE + WINDOW, 1000, *scope, RUN)
    assert not walks(plan)
    assert pages < most


@pytest.mark.parametrize("verb", ["stream_forwards", "stream_backwards"])
@pytest.mark.parametrize(("after", "before"), [(0, END), (10, 20)])
async def test_a_stream(explain, verb, after, before):
    plan, pages = await explain(verb, "Order", "777", after, before, None, 1000)
    assert not walks(plan)
    assert plan["Actual Rows"] == min(50, before - after - 1)
    assert pages < 70


@pytest.mark.parametrize("verb", ["stream_forwards", "stream_backwards"])
async def test_the_end_of_a_stream(explain, verb):
    plan, pages = await explain(verb, "Order", "777", 0, END, None, 1)
    assert not walks(plan)
    assert pages < 10


@pytest.mark.parametrize("verb", ["read_forwards", "read_backwards"])
@pytest.mark.parametrize("after", [0, MIDDLE])
async def test_a_page_by_position(explain, verb, after):
    plan, pages = await explain(verb, after, EVENTS, None, None, 1000, RUN)
    assert not walks(plan)
    assert pages < 60


@pytest.mark.parametrize("verb", ["read_forwards", "read_backwards"])
async def test_a_page_with_a_filter(explain, verb):
    plan, pages = await explain(verb, 0, EVENTS, ["Customer"], None, 1000, RUN)
    assert not walks(plan)
    assert pages < 300


async def test_append(explain):
    """The whole function: look up the version, write the event into both indexes, take the gate."""
    _, pages = await explain("append", "Order-777", '[{"type": "X"}]', None, None, None, None)
    assert pages < 100


async def test_heads(explain):
    wanted = [str(s) for s in range(1, 1001) if s % 10]
    plan, pages = await explain("stream_versions", ["Order"] * len(wanted), wanted)
    assert not walks(plan)
    assert plan["Actual Rows"] == len(wanted)
    assert pages < 10 * len(wanted)


async def test_settle(explain):
    plan, pages = await explain("move_checkpoint", "c77", 2, 1, 1, MIDDLE, MIDDLE + 100, 100, 5.0, RUN)
    assert plan["Actual Rows"] == 1
    assert pages < 40


async def test_frontier(explain):
    _, pages = await explain("frontier", 0)
    assert pages < 40


def test_the_check_can_fail():
    assert walks({"Node Type": "Limit", "Plans": [{"Node Type": "Seq Scan", "Relation Name": "event"}]})
    assert walks({"Node Type": "Limit", "Plans": [{"Node Type": "Sort"}]})
    assert not walks({"Node Type": "Limit", "Plans": [{"Node Type": "Index Scan", "Relation Name": "event"}]})
