"""Creating and dropping partitions holds up no session: no waits in the lock queue, no deadlocks, no long reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from howdah import Howdah, Poison, Retention
from howdah.maintenance.pruner import Pruner
from howdah.postgres.database import Database
from kit.interleave import switch_off
from kit.node import drain, eventually, job, state
from kit.roles import worker
from maintenance.test_prune import age, partitions, small_partitions

pytestmark = pytest.mark.anyio

IN_THE_QUEUE = """
select count(*) from pg_locks l
where l.mode = 'AccessExclusiveLock' and not l.granted
  and l.relation in (select c.oid from pg_class c where c.relnamespace = 'howdah'::regnamespace)
"""
ASLEEP = "select exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())"
OLD = """
insert into howdah.job (id, queue, kind, args)
select i, 'default', 'works', '{"n": 1}' from generate_series($1::int8, $2) i
"""
OLD_DONE = """
insert into howdah.done (id, attempt, state, finished_at)
select i, 1, (case when i % $3 = 0 then 'f' else 'd' end)::"char", now() - $4 * interval '1 day'
from generate_series($1::int8, $2) i
"""


@pytest.fixture
def works(app):
    @app.task
    async def works(n: int) -> None:
        if n % 10 == 9:
            raise Poison("on purpose")

    return works


async def fill(conn: Any, first: int, last: int, *, failed: int = 10, days: float = 20) -> None:
    """Jobs that ended days ago; one in ``failed`` failed."""
    await conn.execute(OLD, first, last)
    await conn.execute(OLD_DONE, first, last, failed, days)
    await conn.execute("insert into howdah.lane values ('default', 0)")


@asynccontextmanager
async def reading(database: Database) -> AsyncIterator[Any]:
    """A transaction that has read all jobs, as of a dump or a report."""
    conn = await database.connect("report")
    await conn.execute("begin isolation level repeatable read")
    await conn.fetchval("select count(*) from howdah.job j left join howdah.done d on d.id = j.id")
    try:
        yield conn
    finally:
        conn.terminate()


async def seen_in_the_queue(conn: Any, doing: asyncio.Future[Any]) -> int:
    """How often an upkeep was seen waiting in the lock queue until it is over."""
    seen = 0
    while not doing.done():
        seen += await conn.fetchval(IN_THE_QUEUE)
        await asyncio.sleep(0.005)
    return seen


async def test_a_prune_beside_a_reader_waits_in_front_of_no_enqueue_and_deletes_no_rows(app, works, direct, conn):
    await small_partitions(conn)
    await fill(conn, 1, 99)
    await conn.execute("select setval('howdah.job_id', 150)")

    async with reading(direct) as reader:
        pruning = asyncio.ensure_future(Pruner(worker(direct), Retention()).prune())
        seen = await seen_in_the_queue(conn, pruning)
        left = await conn.fetchval("select count(*) from howdah.done")
        note = await conn.fetchrow("select * from howdah.upkeep")
        pid = reader.get_server_pid()
    await eventually(lambda: conn.fetchval("select not exists (select from pg_locks where pid = $1)", pid))
    again = await Pruner(worker(direct), Retention()).prune()

    assert seen == 0
    assert (await pruning).jobs == 0
    assert left == 99, "a drop takes them later, in one piece"
    assert (note["task"], note["holder"]) == ("prune", f"process {pid} (howdah report)")
    assert (again.partitions, again.jobs) == (1, 90)
    assert await conn.fetchval("select count(*) from howdah.upkeep") == 0


async def test_rows_are_deleted_when_partitions_could_not_be_dropped_for_a_day(app, works, direct, conn):
    await small_partitions(conn)
    await fill(conn, 1, 99)
    await conn.execute("select setval('howdah.job_id', 150)")
    await conn.execute("insert into howdah.upkeep (task, since) values ('prune', now() - interval '25 hours')")

    async with reading(direct):
        pruning = asyncio.ensure_future(Pruner(worker(direct), Retention()).prune())
        seen = await seen_in_the_queue(conn, pruning)
    pruned = await pruning

    assert seen > 0, "after six hours it waits in the lock queue, too"
    assert (pruned.partitions, pruned.jobs) == (0, 90)


async def test_eight_nodes_that_prune_at_once_end_in_no_deadlock(app, works, direct, conn):
    await small_partitions(conn)
    await fill(conn, 1, 299)
    await conn.execute("select setval('howdah.job_id', 310)")
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    before = await conn.fetchval(deadlocks)

    async def enqueue() -> None:
        for _ in range(40):
            await works.enqueue(1)

    pruned = await asyncio.gather(*(Pruner(worker(direct), Retention()).prune() for _ in range(8)), enqueue())

    await asyncio.sleep(1)  # counters are written at intervals
    assert sum(each.partitions for each in pruned[:8]) == 3
    assert sum(each.jobs for each in pruned[:8]) == 270
    assert await conn.fetchval(deadlocks) == before
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'queued'") == 40


async def test_a_node_that_dies_after_a_detach_leaves_the_drop_to_another(app, works, direct, conn):
    await small_partitions(conn)
    await fill(conn, 1, 99)
    await conn.execute("insert into howdah.attempt (id, attempt, outcome) values (10, 1, 'failed'), (11, 1, 'retry')")
    await conn.execute("select setval('howdah.job_id', 150)")

    detached = await conn.fetchval(
        "select howdah.prune_partition(now() - interval '14 days', now() - interval '30 days')"
    )
    tables = "select count(*) from pg_class where relname ~ '^(pruned|kept)_' and relkind = 'r'"
    left = await conn.fetchval(tables)
    between = await state(conn, 10), await conn.fetchval("select count(*) from howdah.jobs where id = 11")
    await Pruner(worker(direct), Retention()).prune()

    assert (detached, left) == (90, 2)
    assert between == ("failed", 0)
    assert await conn.fetchval(tables) == 0
    assert [row["id"] for row in await conn.fetch("select id from howdah.attempt")] == [10]
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'failed'") == 9


async def test_many_failures_do_not_keep_the_successes_of_their_partition(app, works, direct, conn):
    await conn.execute("select howdah.grow()")
    await fill(conn, 1, 3000, failed=4)
    await conn.execute("select setval('howdah.job_id', 1000010)")
    before = await partitions(conn)
    oid = await conn.fetchval("select 'howdah.job_0_1000000'::regclass::oid::int8")

    pruned = await Pruner(worker(direct), Retention()).prune()
    again = await Pruner(worker(direct), Retention()).prune()

    assert (pruned.partitions, pruned.jobs) == (1, 2250)
    assert (again.partitions, again.jobs) == (0, 0)
    assert await partitions(conn) == before
    assert await conn.fetchval("select 'howdah.job_0_1000000'::regclass::oid::int8") != oid
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'failed'") == 750
    retried = await conn.fetch("select * from howdah.retry(array[4])")
    assert [row["result"] for row in retried] == ["queued"]
    await age(conn, 20)
    await Pruner(worker(direct), Retention()).prune()
    assert [row["id"] for row in await conn.fetch("select id from howdah.job")] == [4]
    await drain(app)
    assert await state(conn, 4) == "done"


async def retry_while_its_partition_goes(app: Howdah, direct: Database, conn: Any, *, ends: bool) -> int:
    """Job 10 of a partition of 99 old jobs is retried after the prune has read it; returns what the prune says."""
    await small_partitions(conn)
    await fill(conn, 1, 99, days=40)
    await conn.execute("select setval('howdah.job_id', 150)")

    async with reading(direct) as reader:
        statement = "select howdah.prune_partition(now() - interval '14 days', now() - interval '30 days')"
        other = await worker(direct).connect("prune")
        pruning = asyncio.ensure_future(other.fetchval(statement))
        await eventually(lambda: conn.fetchval(ASLEEP))  # it has read the partition, in which job 10 is old
        retried = await conn.fetch("select * from howdah.retry(array[10])")
        if ends:
            await drain(app)
        await reader.execute("commit")
    dropped = await pruning
    other.terminate()
    assert [row["result"] for row in retried] == ["queued"]
    return int(dropped)


@pytest.mark.parametrize("ends", [True, False])
async def test_a_job_that_is_retried_while_its_partition_goes_is_not_lost(app, works, direct, conn, ends):
    dropped = await retry_while_its_partition_goes(app, direct, conn, ends=ends)

    assert dropped == 98
    assert await state(conn, 10) == ("done" if ends else "queued")
    await drain(app)
    assert await state(conn, 10) == "done"


ENDED_SINCE = "d.finished_at >= $3 and d.finished_at >= $1 and d.state = 'd'"
QUEUED = "r.hi > part.lo and r.lo < part.hi"


@pytest.mark.parametrize(("ends", "guard"), [(True, ENDED_SINCE), (False, QUEUED)])
async def test_control_without_a_second_look_a_retried_job_is_lost(app, works, direct, conn, ends, guard):
    await switch_off(conn, "prune_partition", guard, "false")

    await retry_while_its_partition_goes(app, direct, conn, ends=ends)

    assert await job(conn, 10) is None


READ = """
select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int8 from pg_stat_xact_all_tables
where schemaname = 'howdah' and relname ~ '^done_'
"""


async def test_little_is_read_when_nothing_is_due(app, works, conn):
    await conn.execute("select howdah.grow()")
    await fill(conn, 1, 60_000, failed=1000, days=1)
    await conn.execute("vacuum howdah.done_0_1000000")
    cutoffs = "now() - interval '14 days', now() - interval '30 days'"

    async with conn.transaction():
        before = await conn.fetchval(READ)  # by the vacuum
        deleted = await conn.fetchval(f"select howdah.prune_rows({cutoffs}, 100)")
        rows = await conn.fetchval(READ) - before
    await conn.execute("select setval('howdah.job_id', 1000010)")
    async with conn.transaction():
        before = await conn.fetchval(READ)
        dropped = await conn.fetchval(f"select howdah.prune_partition({cutoffs})")
        partition = await conn.fetchval(READ) - before

    assert (deleted, dropped) == (0, None)
    assert rows < 10_000
    assert partition < 1000


async def test_partitions_are_created_once_a_dump_has_ended_and_nobody_waited(app, works, direct, conn):
    await conn.execute("select howdah.grow(), setval('howdah.job_id', 3500000)")
    before = len(await partitions(conn))

    async with reading(direct) as reader:
        other = await worker(direct).connect("grow")
        growing = asyncio.ensure_future(other.fetchval("select howdah.grow()"))
        seen = await seen_in_the_queue(conn, growing)
        note = await conn.fetchrow("select * from howdah.upkeep")
        await reader.execute("commit")
    made = await other.fetchval("select howdah.grow()")
    other.terminate()

    assert (await growing, seen) == (0, 0)
    assert note["task"] == "grow"
    assert note["holder"].endswith("(howdah report)")
    assert len(await partitions(conn)) == before + made > before
    assert await conn.fetchval("select count(*) from howdah.upkeep") == 0


@pytest.mark.parametrize(("within_an_hour", "size"), [(0, 1), (1, 10), (10, 100)])
async def test_partitions_hold_hours_at_the_present_rate(conn, within_an_hour, size):
    million = 1_000_000
    head = 200 * million
    for distance in (1, 10)[: len(str(within_an_hour)) if within_an_hour else 0]:
        await conn.execute(
            "insert into howdah.job (id, queue, kind, args) values ($1, 'default', 'works', '{}')",
            head - distance * million + 5,
        )
    await conn.execute("select setval('howdah.job_id', $1)", head)

    assert await conn.fetchval("select howdah.grow()") > 0

    newest = max(tuple(map(int, name.split("_")[1:])) for name in await partitions(conn) if name != "job_default")
    assert newest[1] - newest[0] == size * million
