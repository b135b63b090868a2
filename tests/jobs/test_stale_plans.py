"""Plans that a session made while all tables were empty, and kept: nothing tells it that they have grown since.

A function keeps its plans until a table in them is vacuumed, analyzed or altered. Planned for empty tables, a join of a
few ids with a table reads the whole table, so hot statements must not have one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from howdah.jobs.ack import array
from howdah.postgres import sql
from kit.job_history import pages

pytestmark = pytest.mark.anyio

NODE = 7
STATEMENTS = sql.load("howdah.jobs", schema="howdah")
EMPTY = """
do $$
declare
    name regclass;
begin
    for name in select oid from pg_class where relnamespace = 'howdah'::regnamespace and relkind = 'r' loop
        execute format('alter table %s set (autovacuum_enabled = off)', name);
    end loop;
end $$
"""
HISTORY = 30_000
FILL = f"""
insert into howdah.job (id, queue, kind, args, key)
    select i, 'default', 'work', '{{}}', 'key ' || i from generate_series(1, {HISTORY} + 1000) i;
insert into howdah.done (id, attempt, state, node) select i, 1, 'd', {NODE} from generate_series(1, {HISTORY}) i;
insert into howdah.job_key (key, id) select 'key ' || i, i from generate_series(1, {HISTORY} + 1000) i;
insert into howdah.cancel_request (id) select generate_series(1, {HISTORY});
insert into howdah.gone (token, id) select 1, generate_series(1, {HISTORY});
insert into howdah.lease (token, node, expires_at, first_id, end_id, remaining, rids, los, his, attempts)
    select i, {NODE}, now() + interval '1 day', i, i + 1, 1, array[i], array[i], array[i + 1], '{{1}}'
    from generate_series({HISTORY} + 1, {HISTORY} + 1000) i
"""
IDS = list(range(HISTORY + 1, HISTORY + 51))
ONES = [1] * len(IDS)
NONE = [None] * len(IDS)


def acks(outcome: bytes) -> tuple[Any, ...]:
    return (IDS, IDS, ONES, [outcome] * len(IDS), [0.0] * len(IDS), ONES, NONE, ["E"] * len(IDS), NONE, NONE, [])


CALLS = {
    "ack of successes": (
        "ack_done",
        NODE,
        IDS,
        ONES,
        *map(array, (IDS, ONES, ONES)),
        [],
        [f"key {id}" for id in IDS],
        IDS,
    ),
    "ack of a batch": (
        "ack_batch",
        NODE,
        IDS,
        ONES,
        *map(array, (IDS, ONES, ONES)),
        [],
        [f"key {id}" for id in IDS],
        IDS,
    ),
    "check of a batch": ("left_jobs", IDS),
    "ack of failures": ("ack", NODE, *acks(b"f")),
    "ack of retries": ("ack", NODE, *acks(b"r")),
    "repeated ack": (
        "ack",
        NODE,
        *([id - 1000 for id in column] if column == IDS else column for column in acks(b"d")),
    ),
}


@pytest.mark.superuser("alters tables of another role")
@pytest.mark.parametrize("name", CALLS)
async def test_a_plan_made_for_empty_tables_reads_only_what_it_needs(database, conn, name):
    await conn.execute(EMPTY)
    await conn.execute("vacuum analyze")
    statement, *args = CALLS[name]
    session = await database.connect("ack")
    try:
        explain = f"explain (analyze, buffers, timing off, format json) {STATEMENTS.get(statement, statement)}"
        prepared = await session.prepare(explain)
        await attempt(session, prepared, args)
        await conn.execute(FILL)
        seen = await attempt(session, prepared, args)
    finally:
        await session.close()

    assert seen < 60 * len(IDS), f"{seen} pages"


async def attempt(session: Any, prepared: Any, args: list[Any]) -> int:
    """Return the pages that a statement touches; what it changes is rolled back."""
    transaction = session.transaction()
    await transaction.start()
    try:
        return pages(json.loads(await prepared.fetchval(*args))[0]["Plan"])
    finally:
        await transaction.rollback()
