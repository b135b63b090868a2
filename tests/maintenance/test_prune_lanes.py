"""Names of queues that are not used any more disappear, and no job disappears with them."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from howdah import Retention
from howdah.maintenance.pruner import FEW_QUEUES, Pruner
from howdah.version import __version__
from kit.node import drain, ended, eventually, node, state

pytestmark = pytest.mark.anyio

NAMES = f"insert into howdah.lane select 'old ' || i, i % 3 from generate_series(1, {2 * FEW_QUEUES}) i"


@pytest.fixture
def note(app):
    @app.task
    async def note(n: int = 0) -> None: ...

    return note


async def names(conn):
    return {row[0] for row in await conn.fetch("select distinct queue from howdah.lane")}


async def prune(database):
    await Pruner(database, Retention()).prune()


async def test_names_without_jobs_disappear(app, conn, database):
    await conn.execute(NAMES)
    await prune(database)
    assert await names(conn) == set()


async def test_few_names_stay(app, conn, database):
    await conn.execute("insert into howdah.lane select 'old ' || i, 0 from generate_series(1, $1::int) i", FEW_QUEUES)
    await prune(database)
    assert len(await names(conn)) == FEW_QUEUES


async def test_queues_that_are_used_or_have_settings_stay(app, conn, database, note):
    await conn.execute(NAMES)
    await note.using(queue="waiting").enqueue()
    await note.using(queue="scheduled", delay=3600).enqueue()
    await note.using(queue="finished").enqueue()
    await note.using(queue="running").enqueue()
    await conn.execute(
        """
        with taken as (delete from howdah.ready where queue in ('running', 'finished') returning *)
        insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
        select 1, now() + interval '1 day', lo, hi, array[rid], array[lo], array[hi], '{1}'
        from taken where queue = 'running';
        insert into howdah.tally values (now() - interval '20 hours', 'finished', 'note', 'ok', 1, 1);
        insert into howdah.tally values (now() - interval '25 hours', 'old 7', 'note', 'ok', 1, 1);
        insert into howdah.lane values ('paused', 0);
        """
    )
    await app.admin.pause("paused", "me")
    await app.admin.pause("old 9", "me")
    await app.admin.resume("old 9")
    await prune(database)

    assert await names(conn) == {"waiting", "scheduled", "finished", "running", "paused", "old 9"}


async def test_nothing_disappears_beside_a_node_of_another_release(app, conn, database):
    await conn.execute(NAMES)
    await conn.execute("insert into howdah.node (name, version) values ('old', '0.1.9'), ('new', $1)", __version__)
    await prune(database)
    assert len(await names(conn)) == 2 * FEW_QUEUES

    await conn.execute("update howdah.node set state = 'offline' where name = 'old'")
    await prune(database)
    assert await names(conn) == set()


@pytest.mark.parametrize("queues", [None, {"old 7": 5}], ids=["all queues", "one queue"])
@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
async def test_a_job_that_is_enqueued_at_the_same_moment_runs(app, conn, direct, note, queues, isolation):
    """Its transaction has seen the name, so it adds none, and commits after the name was deleted."""
    await conn.execute(NAMES)
    other = await asyncpg.connect(direct.dsn)
    transaction = other.transaction(isolation=isolation)
    await transaction.start()
    first = await note.using(conn=other, queue="old 7", priority=1).enqueue()
    await prune(direct)
    second = await note.using(conn=other, queue="old 7", priority=1).enqueue()
    assert await names(conn) == set()
    await transaction.commit()
    await other.close()

    async with node(app, queues=queues, poll=60.0):
        assert (await ended(conn, first.id))["state"] == "done"
        assert (await ended(conn, second.id))["state"] == "done"


async def test_a_node_that_sleeps_finds_a_job_whose_name_was_deleted(app, conn, direct, note):
    await conn.execute(NAMES)
    async with node(app, poll=60.0) as running_node:

        async def asleep():
            return running_node.open and running_node.open[0].store._wakeup._asleep

        await eventually(asleep)
        other = await asyncpg.connect(direct.dsn)
        await other.execute("begin")
        made = await note.using(conn=other, queue="old 8", priority=2).enqueue()
        await prune(direct)
        await other.execute("commit")
        await other.close()
        assert (await ended(conn, made.id))["state"] == "done"


async def test_a_failed_job_of_a_queue_that_disappeared_can_be_retried(app, conn, database, note):
    made = await note.using(queue="gone").enqueue()
    await drain(app)
    await conn.execute("update howdah.done set state = 'f'; delete from howdah.tally")
    await conn.execute(NAMES)
    await prune(database)
    assert await names(conn) == set()

    await app.admin.retry([made.id])
    assert await state(conn, made.id) == "queued"
    await drain(app)
    assert await state(conn, made.id) == "done"


async def test_prunes_at_once_delete_each_name_once(app, conn, database):
    await conn.execute(NAMES)
    await asyncio.gather(*(prune(database) for _ in range(4)))
    assert await names(conn) == set()
