"""Every hot statement with a million finished and a hundred thousand waiting jobs behind it.

What is asserted is work, not time: how many pages a statement touches, and that it never walks the history. Both
with the settings of our own connections and with the server's defaults, as behind a pooler.
"""

from __future__ import annotations

import json
import os
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql as names

from howdah.jobs.store import array
from howdah.pg import sql
from howdah.pg.database import Database, prepare

pytestmark = pytest.mark.anyio

FINISHED, WAITING, SINGLES, LATER = 1_000_000, 100_000, 5_000, 20_000
NODE = 7

FILL = f"""
select setval('howdah.job_id', {FINISHED + WAITING + SINGLES + LATER + 1});
select howdah.grow();
insert into howdah.node (name) values ('test');
insert into howdah.lane select 'default', p from generate_series(-1, 1) p;
insert into howdah.job (id, queue, kind, args, enqueued_at)
    select i, 'default', 'work', '{{"n": 1}}', now() - interval '3 days'
    from generate_series(1, {FINISHED + WAITING + SINGLES + LATER}) i;
insert into howdah.done (id, attempt, state, node, took_us, finished_at)
    select i, 1, case when i % 1000 = 0 then 'f' else 'd' end::"char", {NODE}, 5, now() - interval '3 days'
    from generate_series(1, {FINISHED}) i;
insert into howdah.attempt (id, attempt, outcome) select i, 1, 'failed' from generate_series(1000, {FINISHED}, 1000) i;
insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 500, (i / 500) % 3 - 1, 0, 'default', 'work'
    from generate_series({FINISHED + 1}, {FINISHED + WAITING}, 500) i;
insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 1, 0, 0, 'default', 'work'
    from generate_series({FINISHED + WAITING + 1}, {FINISHED + WAITING + SINGLES}) i;
insert into howdah.later (id, due_at, priority, attempt, queue, kind)
    select i, now() + interval '1 day', 0, 0, 'default', 'work'
    from generate_series({FINISHED + WAITING + SINGLES + 1}, {FINISHED + WAITING + SINGLES + LATER}) i;
"""


@pytest.fixture(scope="module")
def big(server: Any, template: str):
    """A database with a history."""
    name = f"howdah_big_{os.getpid()}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(
            names.SQL("create database {} template {}").format(names.Identifier(name), names.Identifier(template))
        )
        with psycopg.connect(server.dsn_for(name), autocommit=True) as fill:
            fill.execute(FILL)
            fill.execute("analyze")
        yield Database(server.dsn_for(name))
        conn.execute(names.SQL("drop database {} with (force)").format(names.Identifier(name)))


@pytest.fixture(params=["our settings", "server defaults"])
async def look(big: Database, request: pytest.FixtureRequest):
    """Runs a statement and tells its plan and the pages it touched; what it did is rolled back."""
    if request.param == "our settings":
        conn = await big.connect("plans")
    else:
        conn = await asyncpg.connect(big.dsn, statement_cache_size=0)
        await prepare(conn)
    statements = {**sql.load("howdah.jobs", schema="howdah"), **sql.load("howdah.node", schema="howdah")}

    async def look(verb: str, *args: Any, before: str | None = None) -> tuple[str, int]:
        statement = statements.get(verb, verb)
        transaction = conn.transaction()
        await transaction.start()
        if before:
            await conn.execute(before)
        for _ in range(2):  # the first call also reads the catalogue
            savepoint = conn.transaction()
            await savepoint.start()
            [row] = await conn.fetch(f"explain (analyze, buffers, timing off, format json) {statement}", *args)
            await savepoint.rollback()
        await transaction.rollback()
        plan = json.loads(row[0])[0]["Plan"]
        return json.dumps(plan), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    look.conn = conn
    yield look
    await conn.close()


def walks(plan: str, *tables: str) -> list[str]:
    """The partitions of big tables that a plan reads from end to end."""
    found = []

    def visit(node: dict[str, Any]) -> None:
        name = node.get("Relation Name", "")
        if (
            node["Node Type"] == "Seq Scan"
            and name.startswith(tables)
            and node.get("Actual Loops", 1)
            and node["Plan Rows"] > 10
        ):
            found.append(name)
        for child in node.get("Plans", []):
            visit(child)

    visit(json.loads(plan))
    return found


CLAIM = (["default"], [100], 100, NODE, 30.0, ["work"], 8, [], [], [])
LEASED = f"""
with taken as (delete from howdah.ready where hi <= {FINISHED + 501} returning *)
insert into howdah.lease (token, node, expires_at, first_id, end_id, rids, los, his, attempts)
select 99, {NODE}, now() + interval '1 minute', lo, hi, array[rid], array[lo], array[hi], array[1]::int2[] from taken
"""
IDS = list(range(FINISHED + 1, FINISHED + 101))


async def test_claim(look):
    plan, pages = await look("claim", *CLAIM)
    assert walks(plan, "job", "done", "ready", "later") == []
    assert pages < 1500


async def test_claim_of_singles(look):
    plan, pages = await look("claim", ["default"], [100], 100, NODE, 30.0, ["work"], 100, [], [], [])
    assert walks(plan, "job", "done", "ready", "later") == []
    assert pages < 4000


async def test_ack_of_successes(look):
    plan, pages = await look("ack_done", NODE, [99], [99], *map(array, (IDS, [1] * 100, [5] * 100)), before=LEASED)
    assert walks(plan, "job", "done", "ready", "later") == []
    assert pages < 2500


async def test_ack_of_anything(look):
    n = len(IDS)
    outcomes = ([b"d", b"r", b"f", b"s"] * n)[:n]
    columns = ([99] * n, IDS, [1] * n, outcomes, [1.0] * n, [5] * n, [None] * n, ["E"] * n, ["m"] * n, ["t"] * n)
    _, pages = await look("ack", NODE, *columns, [99], before=LEASED)
    assert pages < 5000


async def test_heartbeat(look):
    plan, pages = await look("heartbeat", NODE, [99], 30.0, "busy", 1, False, before=LEASED)
    assert walks(plan, "job", "done", "ready", "later") == []
    assert pages < 100


async def test_promote(look):
    due = f"update howdah.later set due_at = now() where id < {FINISHED + WAITING + SINGLES + 101}"
    plan, pages = await look("promote", ["default"], 1000, before=due)
    assert walks(plan, "job", "done", "ready", "later") == []
    assert pages < 3000


async def test_promote_of_nothing(look):
    plan, pages = await look("promote", ["default"], 1000)
    assert walks(plan, "job", "done", "ready", "later") == []
    assert pages < 400  # dead rows of the tests before it included


async def test_reset(look):
    _, pages = await look("reset", 100, before=LEASED + "; update howdah.lease set expires_at = now() - interval '1 s'")
    assert pages < 12_000  # five hundred jobs go back, each with a line of history


async def test_release(look):
    _, pages = await look("release", NODE, [99], before=LEASED)
    assert pages < 8000


async def test_doze(look):
    _, pages = await look("doze", ["default"], 2000)
    assert pages < 200


async def test_enqueue(look):
    _, pages = await look("enqueue", "work", "{}", "default", 0, None, None, 5, None, "key", None, None)
    assert pages < 200


@pytest.mark.parametrize("id", [500_500, FINISHED + 250, FINISHED + WAITING + 77, FINISHED + WAITING + SINGLES + 9])
async def test_one_job_by_id(look, id):
    plan, pages = await look("select * from howdah.jobs where id = $1", id, before=LEASED)
    assert walks(plan, "job", "done", "ready", "later", "attempt") == []
    assert pages < 120


async def test_cancel_and_retry(look):
    _, pages = await look("select * from howdah.cancel($1::int8[])", [FINISHED + 250, FINISHED + WAITING + SINGLES + 9])
    assert pages < 600
    _, pages = await look("select * from howdah.retry($1::int8[])", [1000, 2000])
    assert pages < 600


async def test_a_claim_does_not_depend_on_what_analyze_saw(look):
    """Statistics taken at the worst moment: an empty ready table, then a hundred thousand rows."""
    conn = look.conn
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(
        "create temp table kept as select * from howdah.ready; delete from howdah.ready; analyze howdah.ready;"
        " insert into howdah.ready select * from kept"
    )
    plan, pages = await look("claim", *CLAIM)
    await transaction.rollback()
    assert walks(plan, "job", "done") == []
    assert pages < 6000


def test_the_bounds_can_fail(server: Any, template: str):
    """The check itself: a walk over a big table is seen."""
    assert walks(json.dumps({"Node Type": "Seq Scan", "Relation Name": "done_0_1000000", "Plan Rows": 1e6}), "done")
