"""What a server showed belongs to that run of that server: crashes and failovers make a consumer skip nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import asyncpg
import pytest

from howdah.events.read import is_restarted
from howdah.postgres import migrate, sql
from howdah.postgres.database import Database
from howdah_lab.torture.servers.single import Single
from kit.consumers import following, held
from kit.node import EVENTUALLY_TIMEOUT, consumers_of, eventually, node
from kit.standby import pair

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

LONG = 4 * EVENTUALLY_TIMEOUT
SETTINGS = {
    "fsync": "off",  # the machine does not lose power
    "wal_writer_delay": "10s",  # what no commit flushes is lost in a crash, as in the moment before it is written
    "max_connections": "100",
}
SILENT = {
    "upkeep": False,
    "notify": False,
    "heartbeat": 60.0,
    "lease": 300.0,
    "rebalance": 60.0,
    "dispatch": 0.05,
}
"""A node that commits nothing by itself: any commit would write down which positions were drawn."""
STATEMENTS = sql.load("howdah.events", schema="howdah")


@asynccontextmanager
async def connected(dsn):
    conn = await asyncpg.connect(dsn, timeout=LONG)
    try:
        yield conn
    finally:
        conn.terminate()


async def append(dsn, events):
    """Append in a transaction of its own; returns the positions."""
    async with connected(dsn) as conn:
        last = await conn.fetchval(
            "select position from howdah.append('S-1', (select json_agg(json_build_object('type', 'T'))"
            " from generate_series(1, $1::int)))",
            events,
        )
    return list(range(last - events + 1, last + 1))


async def roll_back(dsn, events):
    """Draw so many positions, and roll back; returns the head of the log."""
    async with connected(dsn) as conn:
        around = conn.transaction()
        await around.start()
        await conn.execute(
            "select howdah.append('S-2', (select json_agg(json_build_object('type', 'T'))"
            " from generate_series(1, $1::int)))",
            events,
        )
        await around.rollback()
        return await conn.fetchval("select head from howdah.frontier()")


def reached(running_node, position):
    """Whether the consumer of a node has looked up to a position."""

    async def check():
        return any(runner.position >= position for runner in consumers_of(running_node).runners)

    return check


async def handled(dsn):
    async with connected(dsn) as conn:
        return [row[0] for row in await conn.fetch("select position from handled order by n")]


async def prepared(dsn):
    await migrate.migrate(Database(dsn))
    async with connected(dsn) as conn:
        await conn.execute("create table handled (n bigserial, position bigint)")


async def note(_name, event, tx):
    await tx.execute("insert into handled (position) values ($1)", event.position)


@pytest.mark.parametrize("scope", [{}, {"types": ["T"]}], ids=["all", "some types"])
async def test_positions_that_are_drawn_again_after_a_crash_are_not_skipped(monkeypatch, scope):
    monkeypatch.setattr("howdah.events.partition_consumer.SAVE_AFTER", LONG)  # saved after the crash
    async with Single(SETTINGS) as server:
        await prepared(server.dsn)
        app, _ = following(server.dsn, "mirror", handler=note, poll=0.05, **scope)
        async with node(app, **SILENT) as running_node:
            await append(server.dsn, 1)
            await eventually(lambda: stands_at(server.dsn, 1), LONG)
            head = await roll_back(server.dsn, 40)
            await eventually(reached(running_node, head))

            await server.crash()
            await server.start()
            await server.writable(LONG)
            again = await append(server.dsn, 40)
            assert again[0] <= head, "positions were drawn again, or this shows nothing"
            await eventually(lambda: stands_at(server.dsn, again[-1]), LONG)

            assert await handled(server.dsn) == [1, *again]
        await app.close()


async def test_a_crash_of_one_backend_begins_another_run():
    """The postmaster goes on, so its start time does not tell."""
    async with Single(SETTINGS) as server:
        await prepared(server.dsn)
        async with connected(server.dsn) as conn:
            before = await conn.fetchrow("select pg_postmaster_start_time(), howdah.begin_run(), howdah.begin_run()")
            os.kill(conn.get_server_pid(), signal.SIGKILL)
        await server.writable(LONG)
        async with connected(server.dsn) as conn:
            started, none = await conn.fetchrow("select pg_postmaster_start_time(), howdah.server_run()")
            run = await conn.fetchval("select howdah.begin_run()")

    assert started == before[0]
    assert (before[1], none) == (before[2], None)
    assert run not in (before[1], None)


async def test_a_consumer_skips_nothing_of_a_standby_that_lacks_the_last_events():
    async with pair(SETTINGS) as servers:
        await prepared(servers.dsn)
        app, _ = following(servers.dsn, "mirror", handler=note, poll=0.05, batch=10)
        async with node(app, lease=60.0):
            shared = await append(servers.dsn, 30)
            await eventually(lambda: stands_at(servers.dsn, shared[-1]), LONG)
            before = await app.log.admin.status()
            await servers.cut_off()
            lost = await append(servers.dsn, 100)
            await eventually(lambda: stands_at(servers.dsn, lost[-1]), LONG)

            await servers.fail_over()
            kept = await append(servers.standby.dsn, 150)
            assert kept[0] <= lost[-1], "positions were drawn again, or this shows nothing"
            await eventually(lambda: stands_at(servers.standby.dsn, kept[-1]), LONG)

            assert await handled(servers.standby.dsn) == [*shared, *kept]
            after = await app.log.admin.status()
        await app.close()

    assert (after.system, after.timeline) == (before.system, before.timeline + 1)
    assert after.run not in (before.run, None)


async def test_a_consumer_leaves_a_primary_that_lives_on_beside_the_new_one():
    """The frontier is still shown by the old one, and new connections lead to the new one."""
    async with pair(SETTINGS) as servers:
        await prepared(servers.dsn)
        app, _ = following(servers.dsn, "mirror", handler=note, poll=0.05)
        async with node(app, lease=60.0):
            shared = await append(servers.dsn, 5)
            await eventually(lambda: stands_at(servers.dsn, shared[-1]), LONG)
            await servers.cut_off()
            lost = await append(servers.dsn, 50)
            await eventually(lambda: stands_at(servers.primary.dsn, lost[-1]), LONG)

            await servers.fail_over(crash=False)
            servers.proxy.cut("consumers")
            servers.proxy.cut("pool")
            await asyncio.sleep(1)  # time to pass by what the old primary showed, for one who would
            kept = await append(servers.standby.dsn, 60)
            await eventually(lambda: stands_at(servers.standby.dsn, kept[-1]), LONG)
            assert await handled(servers.standby.dsn) == [*shared, *kept]
        await app.close()


async def test_a_consumer_that_the_new_primary_has_never_heard_of_goes_on():
    """It was declared when the standby was cut off already, so the new primary lacks the consumer and its node."""
    async with pair(SETTINGS) as servers:
        await prepared(servers.dsn)
        shared = await append(servers.dsn, 5)
        await servers.cut_off()
        app, _ = following(servers.dsn, "mirror", handler=note, poll=0.05, start="beginning")
        async with node(app, lease=60.0, heartbeat=0.5):
            await eventually(lambda: stands_at(servers.dsn, shared[-1]), LONG)

            await servers.fail_over()
            kept = await append(servers.standby.dsn, 10)
            await eventually(lambda: stands_at(servers.standby.dsn, kept[-1]), LONG)
            assert await handled(servers.standby.dsn) == [*shared, *kept]
        await app.close()


async def stands_at(dsn, position):
    async with connected(dsn) as conn:
        return await conn.fetchval("select min(position) >= $1 from howdah.checkpoint", position)


async def test_nothing_is_read_or_settled_in_another_run(app, conn):
    """The statements themselves: a batch that was read in one run moves no checkpoint in another."""
    app, _ = following(app.database.dsn, "mirror")
    await app.log.append("S-1", [{"type": "T"}] * 3)
    async with node(app) as running_node:
        await eventually(held(conn, running_node))
        await app.log.wait_for("mirror", 3)
    await app.close()
    partition = await conn.fetchrow("update howdah.consumer_partition set node = 7, epoch = epoch + 1 returning epoch")
    run = await conn.fetchval("select howdah.server_run()")
    scoped = (3, 10, None, None, 0, 1)

    for other in (run + 1, None):
        for verb, given in (
            ("follow", (0, 3, 10)),
            ("follow_scoped", (0, *scoped)),
            ("read_forwards", (0, 3, None, None, 9)),
        ):
            with pytest.raises(asyncpg.PostgresError) as raised:
                await conn.fetch(STATEMENTS[verb], *given, other)
            assert is_restarted(raised.value)
        with pytest.raises(asyncpg.PostgresError, match="restarted or replaced"):
            await conn.fetch(STATEMENTS["follow"], 3, 3, 10, other)  # also where there is nothing to read
        settled = await conn.fetchval(
            STATEMENTS["move_checkpoint"], "mirror", 0, 7, partition["epoch"], 3, 9, 0, 1.0, other
        )
        fault = ("mirror", 0, 7, partition["epoch"], 1, True, 4, "E", "m", "t")
        assert (settled, bool(await conn.fetchval(STATEMENTS["record_failure"], *fault, other))) == (None, False)

    assert len(await conn.fetch(STATEMENTS["follow"], 0, 3, 10, run)) == 3
    assert await conn.fetchval(STATEMENTS["move_checkpoint"], "mirror", 0, 7, partition["epoch"], 3, 4, 0, 1.0, run)
    assert await conn.fetchval("select not halted from howdah.checkpoint")


async def test_readers_can_tell_the_log_they_read(app, conn):
    await app.log.read()
    first, status = await app.log.admin.status(), await app.log.admin.status()

    assert first.run == status.run is not None
    row = await conn.fetchrow("select system, timeline, run from howdah.log_identity()")
    assert (row["system"], row["timeline"], row["run"]) == (status.system, status.timeline, status.run)
    assert row["system"] == await conn.fetchval("select system_identifier from pg_control_system()")


async def test_a_transaction_that_begins_the_run_and_stays_open_stops_nobody_for_good(app, conn, direct):
    """Others have no run meanwhile, and wait for nothing."""
    async with connected(direct.dsn) as one, connected(direct.dsn) as other:
        around = one.transaction()
        await around.start()
        mine = await one.fetchval("select howdah.begin_run()")
        assert await asyncio.wait_for(other.fetchval("select howdah.begin_run()"), EVENTUALLY_TIMEOUT) is None
        await around.rollback()

        run = await other.fetchval("select howdah.begin_run()")
        assert run not in (mine, None)
        assert await one.fetchval("select howdah.server_run()") == run
