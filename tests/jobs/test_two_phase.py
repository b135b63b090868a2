"""Two-phase commit: an enqueue can be prepared while workers sleep, if its transaction says that it must not notify."""

from __future__ import annotations

import psycopg
import pytest

from howdah import Howdah
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.job_invariants import wrongs
from kit.node import ended, eventually, node

pytestmark = pytest.mark.anyio

ASLEEP = """
select coalesce(pg_sequence_last_value(howdah.sleep_marker('default')), 0)
    > extract(epoch from clock_timestamp()) * 1000
"""


@pytest.fixture(scope="module")
def two_phase():
    """A server that allows prepared transactions."""
    with embedded.start(settings={"fsync": "off", "max_prepared_transactions": "5"}) as server:
        yield server


async def test_an_enqueue_is_prepared_while_a_worker_sleeps(two_phase):
    await migrate.migrate(Database(two_phase.dsn))
    app = Howdah(two_phase.dsn)

    @app.task
    async def pack(n: int) -> None: ...

    watch = await Database(two_phase.dsn).connect("test")

    async def asleep() -> bool:
        return bool(await watch.fetchval(ASLEEP))

    with psycopg.connect(two_phase.dsn, autocommit=True) as conn:
        async with node(app, poll=0.5):
            await eventually(asleep)
            conn.execute("begin")
            app.enqueue_sync(pack.job(1), conn=conn)
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):  # what the setting is for
                conn.execute("prepare transaction 'loud'")

            await eventually(asleep)
            conn.execute("begin")
            conn.execute("set local howdah.notify = off")
            one = app.enqueue_sync(pack.job(2), conn=conn)
            [two] = conn.execute("""select id from howdah.enqueue('pack', '{"n": 3}')""").fetchone()
            conn.execute("prepare transaction 'quiet'")
            conn.execute("commit prepared 'quiet'")

            assert [(await ended(watch, id))["state"] for id in (one.id, two)] == ["done", "done"]
            await eventually(asleep)
            conn.execute("begin")  # the setting ended with its transaction
            app.enqueue_sync(pack.job(4), conn=conn)
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                conn.execute("prepare transaction 'loud'")
    assert await watch.fetchval("select count(*) from howdah.job") == 2
    await watch.close()
    await app.close()


async def test_repair_leaves_jobs_of_prepared_transactions_alone(two_phase):
    database = Database(two_phase.dsn_for("repair"))
    with psycopg.connect(two_phase.dsn, autocommit=True) as conn:
        conn.execute("create database repair")
    await migrate.migrate(database)
    watch = await database.connect("test")
    repair = "select requeued, ended, leases from howdah.repair(0)"

    with psycopg.connect(database.dsn, autocommit=True) as conn:
        for n in range(3):
            conn.execute("select howdah.enqueue('pack', '{}', key => %s)", (f"key {n}",))
        conn.execute("select howdah.cancel(array[1])")
        for name, act in {
            "enqueue": "howdah.enqueue('pack')",
            "retry": "howdah.retry(array[1])",
            "delete": "howdah.delete(array[2])",
            "move": "howdah.move(array[3], 'other')",
        }.items():
            conn.execute("begin")
            conn.execute(f"select {act}")
            conn.execute(f"prepare transaction '{name}'")
            assert tuple(await watch.fetchrow(repair)) == (0, 0, 0), name
            conn.execute(f"commit prepared '{name}'")
            assert tuple(await watch.fetchrow(repair)) == (0, 0, 0), name

    assert await wrongs(watch) == []
    assert await watch.fetchval("select count(*) from howdah.jobs where state = 'queued'") == 3
    await watch.execute("delete from howdah.ready where lo = 1")
    assert tuple(await watch.fetchrow(repair)) == (1, 0, 0), "it finds what is lost"
    await watch.close()
