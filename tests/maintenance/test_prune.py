"""Partitions grow ahead of the jobs and are dropped behind them."""

from __future__ import annotations

import pytest

from howdah import Poison, Retention
from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import DAY, Pruned, Pruner
from kit.node import drain, job, state
from kit.roles import OWNER, worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def works(app):
    @app.task
    async def works(n: int) -> None:
        if n % 10 == 9:
            raise Poison("on purpose")

    return works


async def partitions(conn):
    rows = await conn.fetch(
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = 'howdah.job'::regclass order by 1"
    )
    return [row["relname"] for row in rows]


async def small_partitions(conn):
    """Partitions of a hundred ids each instead of a million."""
    for name in await partitions(conn):
        if name != "job_default":
            await conn.execute(f"drop table howdah.{name}, howdah.{name.replace('job', 'done')}")
    for lo in range(0, 500, 100):
        for part in ("job", "done"):
            name = f"howdah.{part}_{lo}_{lo + 100}"
            await conn.execute(
                f"create table {name} partition of howdah.{part} for values from ({lo}) to ({lo + 100});"
                f" alter table {name} owner to {OWNER}"
            )


async def age(conn, days):
    await conn.execute(f"update howdah.done set finished_at = finished_at - interval '{days} days'")
    await conn.execute(f"update howdah.job set enqueued_at = enqueued_at - interval '{days} days'")


async def test_nothing_young_is_pruned(app, works, database, conn):
    await app.enqueue_many(works.job(n) for n in range(300))
    await drain(app)
    assert await Pruner(database, Retention()).prune() == Pruned(0, 0)
    assert await conn.fetchval("select count(*) from howdah.job") == 300


async def test_old_partitions_are_dropped_and_what_must_stay_stays(app, works, direct, conn):
    await small_partitions(conn)
    await app.enqueue_many(works.job(n) for n in range(250))
    scheduled = await works.using(delay=100 * DAY).enqueue(0)
    await conn.execute(
        "update howdah.later set id = 50 where id = $1", scheduled.id
    )  # an old one that is still to come
    await conn.execute("delete from howdah.job where id = 50")
    await conn.execute("update howdah.job set id = 50 where id = $1", scheduled.id)
    await conn.execute("update howdah.ready set hi = 50 where lo = 1 and hi > 50 returning hi")
    await conn.execute(
        "insert into howdah.ready (lo, hi, priority, attempt, queue, kind) values (51, 251, 0, 0, 'default', 'works')"
    )
    await drain(app)
    await age(conn, 20)

    pruned = await Pruner(worker(direct), Retention()).prune()

    assert pruned.partitions == 2
    assert "job_0_100" not in await partitions(conn)
    assert "job_100_200" not in await partitions(conn)
    failed = await conn.fetchval("select count(*) from howdah.done where state = 'f'")
    assert failed >= 24
    assert await conn.fetchval("select count(*) from howdah.done where state = 'd'") == 0
    assert await state(conn, 50) == "queued"
    assert await conn.fetchval("select count(*) from howdah.attempt") == failed
    await age(conn, 20)
    await Pruner(worker(direct), Retention()).prune()
    assert await conn.fetchval("select count(*) from howdah.done") == 0
    assert await conn.fetchval("select array_agg(id) from howdah.job") == [50]
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0


async def test_pruning_while_jobs_run_loses_none(app, works, direct, conn):
    import asyncio

    await small_partitions(conn)
    await app.enqueue_many(works.job(n) for n in range(250))
    await drain(app)
    await age(conn, 40)

    async def keep_working():
        for _ in range(20):
            await app.enqueue_many(works.job(n) for n in range(50))
            await drain(app)

    pruner = Pruner(worker(direct), Retention())
    worked = asyncio.create_task(keep_working())
    while not worked.done():
        await pruner.prune()
        await asyncio.sleep(0.05)
    await worked
    assert await conn.fetchval("select count(*) from howdah.done") == 1000


async def test_ids_beyond_the_partitions_land_in_the_default_one_and_growing_goes_on(app, works, conn):
    await conn.execute("select setval('howdah.job_id', 50000000)")
    made = await works.enqueue(1)
    assert (
        await conn.fetchval("select tableoid::regclass::text from howdah.job where id = $1", made.id)
        == "howdah.job_default"
    )

    assert await conn.fetchval("select howdah.grow()") > 0
    assert await conn.fetchval("select howdah.grow()") == 0
    await conn.execute("select setval('howdah.job_id', 51500000)")
    later = await works.enqueue(2)
    home = await conn.fetchval("select tableoid::regclass::text from howdah.job where id = $1", later.id)
    assert home != "howdah.job_default"
    await drain(app)
    assert (await job(conn, made.id))["state"] == (await job(conn, later.id))["state"] == "done"


async def test_finished_jobs_behind_an_unfinished_partition_are_deleted(app, works, database, conn):
    await app.enqueue_many(works.job(n) for n in range(20))
    await drain(app)
    await age(conn, 20)
    pruned = await Pruner(database, Retention(done=14 * DAY, failed=30 * DAY)).prune()

    assert pruned == Pruned(0, 18)
    assert await conn.fetchval("select count(*) from howdah.job") == 2


async def test_pruning_is_also_a_task(app, works, conn):
    await app.enqueue_many(works.job(n) for n in range(20))
    await drain(app)
    await age(conn, 20)
    made = await app.prune.enqueue()
    await drain(app)
    assert (await job(conn, made.id))["result"] == b'{"partitions":0,"jobs":18}'

    stricter = await app.prune.enqueue(done=0.0, failed=DAY)  # also of the one before
    await drain(app)
    assert b'"jobs":' in (await job(conn, stricter.id))["result"]
    assert await conn.fetchval("select count(*) from howdah.job where kind = 'works'") == 0


async def test_strong_locks_are_never_held_between_two_statements(app, works, direct, conn, monkeypatch):
    """A process frozen in a transaction of its own would hold everybody up; so upkeep has none."""
    await small_partitions(conn)
    await app.enqueue_many(works.job(n) for n in range(250))
    await drain(app)
    await age(conn, 40)
    await conn.execute("select setval('howdah.job_id', 40000000)")

    def refuse(*_args, **_options):
        raise AssertionError("a transaction was opened")

    monkeypatch.setattr("asyncpg.Connection.transaction", refuse)
    upkeep = MaintenanceLoops(worker(direct), retention=Retention())
    await upkeep.grow()
    assert (await Pruner(worker(direct), Retention()).prune()).partitions > 0
    await upkeep._session.close()


async def test_what_jobs_said_goes_after_its_time(conn, database):
    await conn.execute(
        "insert into howdah.job_log (id, attempt, at, stream, line) values"
        " (1, 1, now() - interval '8 days', 'log', 'old'), (1, 1, now() - interval '6 days', 'log', 'young')"
    )
    await conn.execute(
        "insert into howdah.run (job, attempt, kind, spec, state, started_at) values"
        " (1, 1, 'build', '{}', 'done', now() - interval '31 days'),"
        " (2, 1, 'build', '{}', 'running', now() - interval '31 days'),"
        " (3, 1, 'build', '{}', 'failed', now() - interval '29 days')"
    )
    await conn.execute(
        "insert into howdah.progress (id, token, share, reported_at) values"
        " (1, 1, 0.5, now() - interval '8 days'), (2, 1, 0.5, now())"
    )
    await Pruner(database, Retention()).prune()
    assert [row[0] for row in await conn.fetch("select line from howdah.job_log")] == ["young"]
    assert [row[0] for row in await conn.fetch("select job from howdah.run order by 1")] == [2, 3]
    assert [row[0] for row in await conn.fetch("select id from howdah.progress")] == [2]


async def test_minutes_of_the_tally_become_hours_after_two_days(conn, database):
    await conn.execute(
        "insert into howdah.tally (at, queue, kind, outcome, jobs, seconds)"
        " select date_trunc('hour', now(), 'UTC') - d * interval '1 day' + m * interval '1 minute', q, 'k', 'ok', 2, 1"
        " from generate_series(0, 29) m, unnest(array['a', 'b']) q, unnest(array[1, 3]) d"
    )
    total = "select sum(jobs) as jobs, sum(seconds) as seconds from howdah.tally"
    before = await conn.fetchrow(total)

    await Pruner(database, Retention()).prune()
    await Pruner(database, Retention()).prune()

    rows = await conn.fetch(
        "select at < now() - interval '2 days' as old, count(*) from howdah.tally group by 1 order by 1"
    )
    assert [tuple(row) for row in rows] == [(False, 60), (True, 2)]
    assert await conn.fetchrow(total) == before
