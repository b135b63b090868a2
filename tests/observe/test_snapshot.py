"""Snapshot of a database: correct, also when a part of it takes too long."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from howdah import Howdah, progress
from howdah.observe import snapshot as room
from howdah.observe.snapshot import Snapshot, SnapshotReader
from howdah.postgres.database import Database
from howdah.table import ddl
from howdah.table.admin import counting
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from kit.node import eventually, node
from kit.roles import owner

pytestmark = pytest.mark.anyio

PLACED = {"type": "Placed", "data": {}}


@pytest.fixture
async def reader(database: Database) -> Any:
    reader = SnapshotReader(database)
    yield reader
    await reader.close()


async def test_an_empty_database(reader: SnapshotReader) -> None:
    reading = await reader.read()

    assert (reading.queues, reading.nodes, reading.running, reading.consumers, reading.late) == ([], [], [], [], [])
    assert len(reading.minutes) == 60
    assert {minute.done for minute in reading.minutes} == {0}
    assert (reading.totals.queued, reading.totals.done.rate) == (0, 0)


async def test_a_node_at_work(app: Howdah, reader: SnapshotReader, conn: Any) -> None:
    release = asyncio.Event()

    @app.task(queue="mail")
    async def send(n: int) -> None:
        progress(0.25, "half of the first half")
        await release.wait()

    await app.enqueue_many(send.job(n) for n in range(5))
    await send.using(delay=3600).enqueue(9)
    async with node(app, slots=2) as running_node:

        async def complete() -> Any:
            reading = await reader.read()
            return reading if [job.share for job in reading.running[:2]] == [0.25, 0.25] else None

        reading = await eventually(complete)
        [queue], [mine] = reading.queues, reading.nodes
        release.set()

        async def counted() -> Any:
            later = await reader.read()
            return later if later.minutes[-1].done + later.minutes[-2].done == 5 else None

        later = await eventually(counted, 20)
    await app.close()

    assert (queue.name, queue.table, queue.scheduled, queue.paused) == ("mail", False, 1, False)
    assert queue.queued + queue.running == 5
    assert queue.running >= 2
    assert queue.oldest_age is None or queue.oldest_age > 0
    assert (mine.id, mine.slots, mine.running, mine.state, mine.remote) == (running_node.node, 2, 2, "busy", False)
    assert {job.kind for job in reading.running} == {"send"}
    first = reading.running[0]
    assert (first.queue, first.attempt, first.node, first.node_name) == ("mail", 1, mine.id, mine.name)
    assert (first.share, first.note) == (0.25, "half of the first half")
    assert first.seconds >= 0
    assert later.queues[0].done.rate > 0
    assert later.totals.done.rate == later.queues[0].done.rate
    assert later.running == []


async def test_running_jobs_are_those_without_an_end_the_oldest_first(
    reader: SnapshotReader, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await conn.fetchval("select id from howdah.enqueue('send')") for _ in range(6)]
    await conn.execute("delete from howdah.ready")
    lease = """
        insert into howdah.lease (node, claimed_at, expires_at, first_id, end_id, rids, los, his, attempts)
        values (7, now() - $1::float8 * interval '1 second', now() + interval '1 hour', $2, $3, '{1}',
            array[$2::int8], array[$3::int8], '{2}')
        returning token
    """
    young = await conn.fetchval(lease, 10.0, ids[0], ids[3])
    await conn.fetchval(lease, 100.0, ids[3], ids[5] + 1)
    await conn.execute("insert into howdah.done (id, attempt, state) values ($1, 1, 'd')", ids[3])
    await conn.execute("insert into howdah.gone values ($1, $2)", young, ids[1])
    await conn.execute("insert into howdah.progress (id, token, share) values ($1, 0, 1)", ids[0])  # of an old lease

    reading = await reader.read()
    monkeypatch.setattr(room, "MOST_RUNNING", 1)
    oldest = await reader.read()

    assert [job.id for job in reading.running] == [ids[4], ids[5], ids[0], ids[2]]
    assert [job.id for job in oldest.running] == [ids[4]]
    assert [int(job.seconds) // 10 for job in reading.running] == [10, 10, 1, 1]
    assert [(job.attempt, job.node, job.node_name, job.share) for job in reading.running] == [(2, 7, None, None)] * 4
    assert reading.queues[0].running == 4


async def test_paused_queues_also_those_that_never_had_a_job(reader: SnapshotReader, conn: Any) -> None:
    await conn.execute("select howdah.pause('mail', 'ada'), howdah.pause('empty')")
    await conn.execute("select howdah.enqueue('send', queue => 'mail'), howdah.enqueue('send')")

    queues = {queue.name: queue for queue in (await reader.read()).queues}

    assert [(name, queue.paused, queue.paused_by, queue.queued) for name, queue in queues.items()] == [
        ("default", False, None, 1),
        ("empty", True, None, 0),
        ("mail", True, "ada", 1),
    ]


async def test_consumers(app: Howdah, reader: SnapshotReader, conn: Any) -> None:
    await conn.execute("select howdah.declare_scope($1, 1, null, null, 0)", "Old")

    @app.consumer("Mail", max_failures=1)
    async def mail(event: Any) -> None:
        raise ValueError("no")

    async with node(app):
        await app.log.append("Order-1", [PLACED, PLACED])
        await eventually(lambda: conn.fetchval("select bool_or(halted) from howdah.checkpoint"))
        reading = await reader.read()
    await app.close()

    assert [(each.name, each.state, each.lag) for each in reading.consumers] == [
        ("Mail", "halted", 2),
        ("Old", "unassigned", 2),
    ]
    assert all(each.lag_seconds >= 0 for each in reading.consumers)


async def test_tables_are_counted_when_their_app_is_known(database: Database, conn: Any) -> None:
    options = TableOptions(table="uploads")
    for statement in ddl.create(options):
        await conn.execute(statement)
    await conn.execute("insert into uploads (state) values ('queued'), ('queued'), ('processing'), ('completed')")
    await conn.execute(
        "insert into howdah.tally values (date_trunc('minute', now()), 'uploads', 'uploads', 'ok', 9, 1)"
    )
    plan = await TablePlan.make(conn, options, "howdah")
    knowing, ignorant = SnapshotReader(database, tables=lambda: [counting(plan)]), SnapshotReader(database)

    [known], [unknown] = (await knowing.read()).queues, (await ignorant.read()).queues
    await conn.execute("drop table uploads")
    gone = await knowing.read()
    await knowing.close()
    await ignorant.close()

    assert (known.table, known.queued, known.running) == (True, 2, 1)
    assert (unknown.table, unknown.queued, unknown.running) == (True, None, None)
    assert known.done.rate > 0
    assert gone.late == ["table uploads"]
    assert [queue.queued for queue in gone.queues] == [None]


async def test_a_part_that_takes_too_long_is_left_out_and_named(
    reader: SnapshotReader, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SECTION_TIMEOUT", 0.3)
    await conn.execute("select howdah.enqueue('send')")
    await conn.execute("insert into howdah.node (name) values ('a:1')")
    await reader.read()

    async with conn.transaction():
        await conn.execute("lock table howdah.ready, howdah.lease in access exclusive mode")
        partly = await reader.read()
    whole = await reader.read()

    assert partly.late == ["queues", "running"]
    assert [each.name for each in partly.nodes] == ["a:1"]
    assert (whole.late, whole.queues[0].queued) == ([], 1)


async def test_a_connection_that_is_cut_heals(reader: SnapshotReader, conn: Any) -> None:
    await reader.read()
    await conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )

    async def healed() -> Snapshot | None:
        try:
            return await reader.read()
        except Exception:
            return None

    assert await eventually(healed)


async def test_what_was_just_read_is_not_read_again(reader: SnapshotReader, conn: Any) -> None:
    first = await reader.read()
    again, fresh = await reader.read(within=3600), await reader.read()
    many = await asyncio.gather(*(reader.read(within=3600) for _ in range(10)))

    assert again is first
    assert fresh is not first
    assert all(each is fresh for each in many)


async def test_a_reading_as_json(reader: SnapshotReader, conn: Any) -> None:
    await conn.execute("select howdah.enqueue('send')")
    reading = await reader.read()

    assert msgspec.json.decode(msgspec.json.encode(reading), type=Snapshot) == reading


async def test_a_hostile_schema(database: Database) -> None:
    app = Howdah(owner(database).dsn, schema='we"ird; drop--')
    await app.migrate()
    reader = SnapshotReader(app.database)
    reading = await reader.read()
    await reader.close()

    assert reading.late == []
