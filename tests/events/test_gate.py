"""The gate and the frontier: an open append is seen by every reader, however its transaction is shaped."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from howdah.postgres import migrate
from howdah.postgres.database import Database
from kit.frontier import append, until, waits

pytestmark = pytest.mark.anyio


async def test_a_fresh_log(watch):
    assert await watch.frontier() == (0, 0, False)


async def test_the_first_position_may_be_the_open_one(watch, a, b):
    await a.execute("begin")
    assert await append(a) == 1
    assert await watch.frontier() == (1, 0, True)
    assert await append(b, "S-2") == 2
    assert await watch.frontier() == (2, 0, True)
    await a.execute("commit")
    assert await watch.frontier() == (2, 2, False)


async def test_the_lowest_open_append_counts(watch, a, b, connect):
    await append(b, "S-0", 3)
    await a.execute("begin")
    await append(a, "S-1", 10)
    await b.execute("begin")
    await append(b, "S-2", 10)
    await append(await connect(), "S-3")
    assert await watch.frontier() == (24, 3, True)
    await a.execute("rollback")
    assert await watch.frontier() == (24, 13, True)
    await b.execute("commit")
    assert await watch.frontier() == (24, 24, False)


async def test_whoever_is_killed_holds_nothing_back(watch, a, b):
    await a.execute("begin")
    await append(a)
    await append(b, "S-2")
    pid = a.get_server_pid()
    await b.fetchval("select pg_terminate_backend($1, 5000)", pid)
    assert await watch.frontier() == (2, 2, False)


# ---------------------------------------------------------------- savepoints


async def test_a_savepoint_that_is_rolled_back_gives_the_gate_back(watch, a, b):
    await a.execute("begin; savepoint one")
    await append(a)
    assert (await watch.gates(), await watch.safe()) == (1, 0)
    await a.execute("rollback to one")
    assert (await watch.gates(), await watch.safe()) == (0, 1)
    await append(b, "S-2")
    await append(a)
    assert (await watch.gates(), await watch.frontier()) == (1, (3, 2, True))
    await a.execute("commit")
    assert await watch.frontier() == (3, 3, False)


async def test_a_savepoint_that_is_released_keeps_the_gate(watch, a, b):
    await a.execute("begin; savepoint one")
    await append(a)
    await a.execute("release one")
    await append(b, "S-2")
    assert (await watch.gates(), await watch.safe()) == (1, 0)
    await a.execute("commit")


async def test_a_gate_from_before_the_savepoint_stays(watch, a, b):
    await a.execute("begin")
    await append(a)
    await append(b, "S-2")
    await a.execute("savepoint one")
    await append(a)
    await a.execute("rollback to one")
    await append(a)
    assert (await watch.gates(), await watch.frontier()) == (1, (4, 0, True))
    await a.execute("commit")
    assert await watch.safe() == 4


async def test_nested_savepoints(watch, a):
    await a.execute("begin; savepoint one; savepoint two")
    await append(a)
    await a.execute("release two")
    assert await watch.gates() == 1
    await a.execute("rollback to one")
    assert await watch.gates() == 0
    await append(a)
    assert (await watch.gates(), await watch.safe()) == (1, 1)
    await a.execute("commit")


async def test_exception_blocks(watch, a, b):
    """Each block is a savepoint; only the last append lives, and its gate with it."""
    await a.execute("begin")
    await a.execute(
        """do $$ begin
            for i in 1 .. 3 loop
                begin
                    perform howdah.append('S-1', '{"type": "X"}');
                    if i < 3 then raise exception 'undone'; end if;
                exception when raise_exception then null;
                end;
            end loop;
        end $$"""
    )
    await append(b, "S-2")
    assert (await watch.gates(), await watch.frontier()) == (1, (4, 2, True))
    await a.execute("commit")
    assert [row[0] for row in await b.fetch("select version from howdah.event where stream_id = '1'")] == [1]


async def test_a_procedure_that_commits(watch, a, b):
    await b.execute(
        """create procedure two() language plpgsql as $$ begin
            perform howdah.append('S-1', '{"type": "X"}');
            commit;
            perform pg_advisory_lock(1);
            perform howdah.append('S-1', '{"type": "X"}');
            perform pg_advisory_lock(2);
        end $$"""
    )
    await b.execute("select pg_advisory_lock(1), pg_advisory_lock(2)")
    running = asyncio.create_task(a.execute("call two()"))
    await waits(watch, a)
    assert (await watch.gates(), await watch.frontier()) == (0, (1, 1, False))
    await b.execute("select pg_advisory_unlock(1)")
    await until(watch.gates, 1)
    await waits(watch, a)
    assert await append(b, "S-2") == 3
    assert await watch.frontier() == (3, 1, True)
    await b.execute("select pg_advisory_unlock(2)")
    await running
    assert await watch.frontier() == (3, 3, False)


async def test_commit_and_chain(watch, a, b):
    await a.execute("begin")
    await append(a)
    await a.execute("commit and chain")
    assert await watch.frontier() == (1, 1, False)
    await append(b, "S-2")
    await append(a)
    await append(b, "S-2")
    assert await watch.frontier() == (4, 2, True)
    await a.execute("rollback and chain")
    assert await watch.frontier() == (4, 4, False)
    await append(a)
    assert await watch.frontier() == (5, 4, True)


# ---------------------------------------------------------------- isolation


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_an_append_with_an_old_snapshot(watch, a, b, level):
    """The gate looks at the sequence of now, not of the snapshot."""
    await a.execute(f"begin isolation level {level}")
    await a.fetchval("select count(*) from howdah.event")
    for _ in range(5):
        await append(b, "S-2")
    assert await append(a) == 6
    await append(b, "S-2")
    assert await watch.frontier() == (7, 5, True)
    await a.execute("commit")
    assert await watch.frontier() == (7, 7, False)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_stream_that_moved_since_the_snapshot(watch, a, b, level):
    await a.execute(f"begin isolation level {level}")
    await a.fetchval("select count(*) from howdah.event")
    await append(b)
    with pytest.raises(asyncpg.SerializationError):
        await append(a)
    await a.execute("rollback")
    assert await watch.frontier() == (2, 2, False)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_the_frontier_refuses_a_frozen_snapshot(a, level):
    await a.execute(f"begin isolation level {level}")
    with pytest.raises(asyncpg.PostgresError, match="the frontier needs READ COMMITTED") as refused:
        await a.fetchrow("select * from howdah.frontier()")
    assert refused.value.sqlstate == "25001"


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize("start", [2**31 - 3, 2**31, 2**32 - 3, 2**32, 5 * 2**32 - 3, 2**62], ids=str)
async def test_positions_of_every_width(watch, a, b, connect, start):
    c = await connect()
    await watch.conn.execute(f"select setval('howdah.event_position_seq', {start})")
    await a.execute("begin")
    await append(a)
    await append(b, "S-2", 10)
    await c.execute("begin")
    await append(c, "S-3")
    await append(b, "S-2", 10)

    async def ahead():
        return [position - start for position in (await watch.frontier())[:2]]

    assert await ahead() == [22, 0]
    await a.execute("commit")
    assert await ahead() == [22, 11]
    await c.execute("commit")
    assert await ahead() == [22, 22]


async def test_one_lock_for_a_transaction(watch, a):
    await a.execute("begin")
    await a.execute("select howdah.append('S-' || g, '{\"type\": \"X\"}') from generate_series(1, 2000) g")
    assert await watch.gates() == 1
    await a.execute("rollback")
    await watch.conn.execute(f"select setval('howdah.event_position_seq', {3 * 2**32})")
    await a.execute("begin")
    await a.execute("select howdah.append('S-' || g, '{\"type\": \"X\"}') from generate_series(1, 2000) g")
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = $1"
    assert await watch.conn.fetchval(held, a.get_server_pid()) == 2


# ---------------------------------------------------------------- neighbours


async def test_others_do_not_matter(watch, a, b, connect):
    """Old snapshots, idle writers and foreign locks: what stalls readers who ask for the oldest transaction."""
    await a.execute("begin isolation level repeatable read; create table other (n int); insert into other values (1)")
    await b.execute("begin; select count(*) from howdah.event; lock table howdah.event in row exclusive mode")
    oid = await watch.conn.fetchval("select 'howdah.event'::regclass::oid::int8")
    await b.execute(
        "select pg_advisory_lock(g) from generate_series(1, 200) g;"
        " select pg_advisory_lock_shared(7, g) from generate_series(1, 200) g;"
        f" select pg_advisory_xact_lock_shared(({oid}::int8 << 32) + 1);"  # one key of eight bytes: another lock
        f" select pg_advisory_xact_lock({oid}, 1)"  # and only shared ones are gates
    )
    await append(await connect(), "S-1", 3)
    assert await watch.frontier() == (3, 3, False)


async def test_two_logs_in_one_database(watch, a, b, direct):
    await migrate.migrate(Database(direct.dsn, schema="other log"))
    await a.execute("begin")
    await a.fetchval("""select "other log".append('S-1', '{"type": "X"}')""")
    await append(b, "S-2", 3)
    assert await watch.frontier() == (3, 3, False)
    await append(a)
    await append(b, "S-2")
    assert await watch.frontier() == (5, 3, True)
    assert tuple(await watch.conn.fetchrow('select * from "other log".frontier()')) == (1, 0, True)
    await a.execute("commit")
    assert tuple(await watch.conn.fetchrow('select * from "other log".frontier()')) == (1, 1, False)


@pytest.mark.superuser("sets session_replication_role")
async def test_a_session_that_replicates_is_behind_the_gate_too(watch, a, b):
    await a.execute("set session_replication_role = replica")
    await a.execute("begin")
    assert await append(a) == 1
    assert await append(b, "S-2") == 2
    assert await watch.frontier() == (2, 0, True)
