"""A database with a long history of jobs, and a look at what one statement does in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from psycopg import sql as names

from howdah.postgres import sql

FINISHED, WAITING, SINGLES, LATER, RUNNING, NODES = 1_050_000, 100_000, 5_000, 20_000, 10_000, 1_000
ALONE = FINISHED + WAITING
"""Above it, runs of a single job; up to it, runs of five hundred."""
PUT_OFF = ALONE + SINGLES
"""Above it, jobs that are not due yet."""
HELD = PUT_OFF + LATER
"""Above it, jobs under lease, ten each."""
NEWEST = HELD + RUNNING
NODE, TOKEN = 7, 99

FILL = f"""
select setval('howdah.job_id', {NEWEST});
select howdah.grow();
insert into howdah.node (name) select 'node ' || i from generate_series(1, {NODES}) i;
insert into howdah.lane select 'default', p from generate_series(-1, 1) p;
insert into howdah.lane select 'quiet ' || i, 0 from generate_series(1, 20) i;
insert into howdah.job (id, queue, kind, args, enqueued_at, key)
    select i, 'default', 'work', '{{"n": 1}}', now() - interval '3 days', case when i % 5 = 0 then 'key ' || i end
    from generate_series(1, {NEWEST}) i;
insert into howdah.job_key (key, id) select 'key ' || i, i from generate_series({FINISHED + 5}, {NEWEST}, 5) i;
insert into howdah.done (id, attempt, state, node, took_us, finished_at)
    select i, 1, case when i % 1000 = 0 then 'f' else 'd' end::"char", {NODE}, 5, now() - interval '3 days'
    from generate_series(1, {FINISHED}) i;
insert into howdah.attempt (id, attempt, outcome) select i, 1, 'failed' from generate_series(50, {FINISHED}, 50) i;
insert into howdah.job_log (id, attempt, stream, line)
    select i, 1, 'log', 'said' from generate_series(10, {FINISHED}, 10) i;
insert into howdah.run (job, attempt, kind, node, spec, state)
    select i, 1, 'work', {NODE}, '{{}}', 'done' from generate_series(10, {FINISHED}, 10) i;
insert into howdah.tally (at, queue, kind, outcome, jobs, seconds)
    select date_trunc('minute', now()) - i * interval '1 minute', 'default', 'work', 'ok', 10, 1
    from generate_series(1, 20000) i;
insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 500, (i / 500) % 3 - 1, 0, 'default', 'work' from generate_series({FINISHED + 1}, {ALONE}, 500) i;
insert into howdah.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 1, 0, 0, 'default', 'work' from generate_series({ALONE + 1}, {PUT_OFF}) i;
insert into howdah.later (id, due_at, priority, attempt, queue, kind)
    select i, now() + interval '1 day', 0, 0, 'default', 'work' from generate_series({PUT_OFF + 1}, {HELD}) i;
insert into howdah.lease (token, node, expires_at, first_id, end_id, rids, los, his, attempts)
    select i, 1 + i / 10 % {NODES}, now() + interval '1 day', i, i + 10, array[i], array[i], array[i + 10], '{{1}}'
    from generate_series({HELD + 1}, {NEWEST}, 10) i;
insert into howdah.run (job, attempt, kind, node, spec)
    select i, 1, 'work', 1 + i / 10 % {NODES}, '{{}}' from generate_series({HELD + 1}, {NEWEST}, 100) i;
"""
LEASED = f"""
with taken as (delete from howdah.ready where hi <= {FINISHED + 501} returning *)
insert into howdah.lease (token, node, expires_at, first_id, end_id, remaining, rids, los, his, attempts)
select {TOKEN}, {NODE}, now() + interval '1 day', lo, hi, hi - lo, array[rid], array[lo], array[hi], '{{1}}'
from taken
"""
"""Puts the first five hundred waiting jobs under a lease of the node."""

TABLES = """
select relname, seq_tup_read as walked, seq_tup_read + coalesce(idx_tup_fetch, 0) as rows
from pg_stat_xact_all_tables
where schemaname = 'howdah'
"""
GROWS = ("job", "done", "attempt", "run", "ready", "later")
"""Tables that are long, or can be: nobody may walk them. Partitions and `job_key`, `job_log` begin the same."""
FEW = 150
"""Rows that fit on a page."""


@dataclass(frozen=True, slots=True)
class StatementCost:
    """What a statement did, also within the functions it calls."""

    pages: int
    """Pages it touched."""
    rows: int
    """Rows it read, and perhaps threw away."""
    walked: dict[str, int]
    """Rows it read without an index, by table, of tables that may be long; a few are no walk."""


class StatementMeter:
    """Runs statements on one connection; what they did is rolled back."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn
        self._sql = {**sql.load("howdah.jobs", schema="howdah"), **sql.load("howdah.node", schema="howdah")}

    async def __call__(self, verb: str, *args: Any, before: str | None = None) -> StatementCost:
        """Look at a statement by name, or as it stands; ``before``: what must have happened."""
        transaction = self.conn.transaction()
        await transaction.start()
        try:
            if before:
                await self.conn.execute(before)
            await self._once(verb, args)  # the first call also reads the catalogue
            return await self._once(verb, args)
        finally:
            await transaction.rollback()

    async def _once(self, verb: str, args: tuple[Any, ...]) -> StatementCost:
        values = f"({', '.join(map(quoted, args))})" if args else ""
        savepoint = self.conn.transaction()
        await savepoint.start()
        try:
            await self.conn.execute(f"prepare hot as {self._sql.get(verb, verb)}")
            first = await self.conn.fetch(TABLES)
            plan = await self.conn.fetchval(f"explain (analyze, buffers, timing off, format json) execute hot{values}")
            then = await self.conn.fetch(TABLES)
            await self.conn.execute("deallocate hot")
        finally:
            await savepoint.rollback()
        old = {row["relname"]: row for row in first}
        walked = {row["relname"]: row["walked"] - since(old, row, "walked") for row in then}
        return StatementCost(
            pages=pages(json.loads(plan)[0]["Plan"]),
            rows=sum(row["rows"] - since(old, row, "rows") for row in then),
            walked={name: rows for name, rows in walked.items() if rows > FEW and name.startswith(GROWS)},
        )


def since(old: dict[str, Any], row: Any, column: str) -> int:
    return old[row["relname"]][column] if row["relname"] in old else 0


def pages(plan: dict[str, Any]) -> int:
    """The pages a statement touched. Writing CTEs that nobody reads from run after the plan and count by themselves."""
    read: set[str] = set()

    def visit(node: dict[str, Any]) -> None:
        read.add(node.get("CTE Name", ""))
        for child in node.get("Plans", []):
            visit(child)

    visit(plan)
    apart = [node for node in plan.get("Plans", []) if node.get("Subplan Name", "").startswith("CTE ")]
    nodes = [plan, *(node for node in apart if node["Subplan Name"].removeprefix("CTE ") not in read)]
    return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in nodes)


def quoted(value: Any) -> str:
    """A value as SQL, for EXECUTE takes no parameters."""
    return names.Literal(value).as_string(None)
