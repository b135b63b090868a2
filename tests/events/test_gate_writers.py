"""The gate and those who write without our code; the exclusive gate; and a server at its limits."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg
import psycopg
import pytest

from howdah import Howdah
from howdah.postgres.embedded import server as embedded
from kit.frontier import Watch, append, connections_to, until, waits

pytestmark = pytest.mark.anyio

COLUMNS = "(stream_type, stream_id, version, type, data)"
VERSION = int(os.environ.get("HOWDAH_TEST_PG", "18"))


# ---------------------------------------------------------------- foreign writers


@pytest.mark.parametrize(
    "statement",
    [
        f"insert into howdah.event {COLUMNS} values ('S', 'f', 1, 'X', '{{}}')",
        f"insert into howdah.event {COLUMNS} select 'S', 'f', g, 'X', '{{}}' from generate_series(1, 3) g",
        f"with made as (insert into howdah.event {COLUMNS} values ('S', 'f', 1, 'X', '{{}}') returning position)"
        " select position from made",
        f"insert into howdah.event {COLUMNS} values ('S', 'f', 1, 'X', '{{}}') on conflict do nothing",
        f"merge into howdah.event e using (values (1)) v(n) on e.stream_id = 'f' when not matched then"
        f" insert {COLUMNS} values ('S', 'f', v.n, 'X', '{{}}')",
    ],
    ids=["values", "select", "with", "on conflict", "merge"],
)
async def test_a_plain_insert_is_behind_the_gate(direct, watch, b, statement):
    with psycopg.connect(direct.dsn) as foreign:
        foreign.execute(statement)
        await append(b, "S-2")
        head, safe, held = await watch.frontier()
        assert (safe, held) == (0, True)
        assert head >= 2
        foreign.commit()
    assert await watch.frontier() == (head, head, False)


async def test_a_copy_is_behind_the_gate(direct, watch, b):
    with psycopg.connect(direct.dsn) as foreign:
        with foreign.cursor().copy(f"copy howdah.event {COLUMNS} from stdin") as copy:
            for n in range(1, 101):
                copy.write_row(("S", "f", n, "X", "{}"))
        await append(b, "S-2")
        assert await watch.frontier() == (101, 0, True)
        foreign.rollback()
    assert await watch.frontier() == (101, 101, False)


async def test_a_statement_that_fails_leaves_the_gate_open(direct, watch, b):
    """In its savepoint the lock is gone; outside, the whole transaction is."""
    with psycopg.connect(direct.dsn) as foreign:
        foreign.execute("savepoint one")
        with pytest.raises(psycopg.errors.NotNullViolation):
            foreign.execute(f"insert into howdah.event {COLUMNS} values ('S', 'f', null, 'X', '{{}}')")
        foreign.execute("rollback to one")
        assert await watch.gates() == 0
        foreign.execute(f"insert into howdah.event {COLUMNS} values ('S', 'f', 1, 'X', '{{}}')")
        await append(b, "S-2")
        assert await watch.frontier() == (3, 1, True)
        foreign.commit()
    assert await watch.safe() == 3


async def test_a_position_of_ones_own_choice_is_refused(conn, written):
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.execute(
            "insert into howdah.event (position, stream_type, stream_id, version, type, data)"
            " values (17, 'S', 'f', 1, 'X', '{}')"
        )
    assert refused.value.sqlstate == "428C9"
    assert await written() == []


async def test_a_foreign_insert_wakes_sleepers(app, direct, connect):
    sleeper = await connect()
    heard: list[Any] = []
    await sleeper.add_listener(
        await sleeper.fetchval("select howdah.log_channel()"), lambda *notification: heard.append(notification)
    )
    insert = f"insert into howdah.event {COLUMNS} values ('S', 'f', %s, 'X', '{{}}')"
    with psycopg.connect(direct.dsn, autocommit=True) as foreign:
        foreign.execute(insert, (1,))
        await sleeper.execute("select 1")
        assert heard == [], "nobody slept"
        await sleeper.execute("select howdah.frontier(5000)")
        foreign.execute(insert, (2,))
    async with asyncio.timeout(30):
        while not heard:
            await asyncio.sleep(0.01)


@pytest.fixture
async def role(watch):
    """A role that may append and read, and no more."""
    role = await watch.conn.fetchval("select 'plain_' || current_database()")
    await watch.conn.execute(
        f"create role {role}; grant usage on schema howdah to {role}; grant select, insert on howdah.event to {role}"
    )
    yield role
    await watch.conn.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    await watch.conn.execute(f"drop owned by {role}; drop role {role}")


@pytest.mark.superuser("the roles take from everybody the right to call functions")
async def test_a_role_with_few_rights(watch, a, b, role):
    """It need not see the sequences: the gate does, or it would lock at 0 and pull the frontier back."""
    await append(b, "S-2", 5)
    await a.execute(f"set role {role}; begin")
    await append(a)
    await append(b, "S-2")
    assert await watch.frontier() == (7, 5, True)
    await a.execute("commit")
    assert tuple(await a.fetchrow("select * from howdah.frontier()")) == (7, 7, False)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await a.execute("select setval('howdah.event_position_seq', 1)")


@pytest.mark.superuser("the roles take from everybody the right to call functions")
async def test_a_role_with_few_rights_waits_at_the_exclusive_gate(app, watch, a, b, role):
    await app.log.admin.set_exclusive(True)
    await b.execute("begin")
    await append(b, "S-2")
    await a.execute(f"set role {role}")
    second = asyncio.create_task(append(a))
    await waits(watch, a)
    await b.execute("commit")
    assert await second == 2


# ---------------------------------------------------------------- one at a time


async def test_the_exclusive_gate_lets_positions_commit_in_order(app, watch, a, b):
    await app.log.admin.set_exclusive(True)
    await a.execute("begin")
    await append(a)
    second = asyncio.create_task(append(b, "S-2"))
    await waits(watch, b)
    assert await watch.frontier() == (1, 0, True), "the second has not drawn a position"
    await append(a, "S-3")
    await a.execute("commit")
    assert await second == 3
    await app.log.admin.set_exclusive(False)
    await a.execute("begin")
    await append(a)
    assert await append(b, "S-2") == 5


async def test_the_exclusive_gate_falls_with_a_savepoint(app, a, b):
    await app.log.admin.set_exclusive(True)
    await a.execute("begin; savepoint one")
    await append(a)
    await a.execute("rollback to one")
    assert await asyncio.wait_for(append(b, "S-2"), 30) == 2
    await a.execute("commit")


async def test_appends_may_be_open_when_the_gate_becomes_exclusive(app, watch, a, b, connect):
    c = await connect()
    await a.execute("begin")
    await append(a)
    await app.log.admin.set_exclusive(True)
    await b.execute("begin")
    await append(b, "S-2")
    third = asyncio.create_task(append(c, "S-3"))
    await waits(watch, c)
    await append(a, "S-4")  # it has its gate, and waits for nobody
    assert await watch.frontier() == (3, 0, True)
    await b.execute("commit")
    await third
    assert await watch.frontier() == (4, 0, True)
    await a.execute("commit")
    assert await watch.frontier() == (4, 4, False)


async def test_appends_may_be_open_when_the_gate_is_shared_again(app, watch, a, b, connect):
    c = await connect()
    await app.log.admin.set_exclusive(True)
    await a.execute("begin")
    await append(a)
    second = asyncio.create_task(append(b, "S-2"))
    await waits(watch, b)
    await app.log.admin.set_exclusive(False)
    await append(c, "S-3")
    assert await watch.frontier() == (2, 0, True)
    await a.execute("commit")
    assert await second == 3
    assert await watch.safe() == 3


# ---------------------------------------------------------------- a server at its limits


@pytest.fixture(scope="module")
def tight():
    """A server with few locks that allows prepared transactions."""
    settings = {
        "fsync": "off",
        "max_connections": "12",
        "max_locks_per_transaction": "20",
        "max_prepared_transactions": "5",
        "autovacuum": "off",
    }
    with embedded.start(version=VERSION, settings=settings) as server:
        asyncio.run(Howdah(server.dsn).migrate())
        yield server


@pytest.mark.parametrize("notify", ["on", "off", "false"])
async def test_an_append_can_be_prepared_while_a_consumer_sleeps(tight, notify):
    """Without its notification; the consumer sees the open append, and looks again until it has ended."""
    async with connections_to(tight.dsn) as connect:
        a, watch = await connect(), Watch(await connect())
        await watch.conn.execute("select howdah.frontier(60000)")  # a consumer is about to sleep
        await a.execute("begin")
        await a.execute(f"set local howdah.notify = {notify}")
        made = await append(a, f"S-{notify}")
        await watch.conn.execute("select setval('howdah.log_sleep_marker', 0)")  # for the tests that come next
        if notify == "on":
            with pytest.raises(asyncpg.FeatureNotSupportedError, match="NOTIFY"):
                await a.execute("prepare transaction 'quiet'")
            return
        await a.execute("prepare transaction 'quiet'")
        assert (await watch.frontier())[1:] == (made - 1, True)
        await a.execute("commit prepared 'quiet'")
        assert (await watch.frontier())[1:] == (made, False)


async def test_a_consumer_held_back_by_a_prepared_append_is_behind(tight):
    app = Howdah(tight.dsn)
    async with connections_to(tight.dsn) as connect:
        a, b = await connect(), await connect()
        await a.execute("select howdah.declare_scope('held', 1, null, null, null)")
        await a.execute("begin")
        await append(a, "H-1")
        await a.execute("prepare transaction 'late'")
        await append(b, "H-2", 2)
        [row] = await app.log.admin.consumers("held")
        await b.execute("rollback prepared 'late'")
        await b.execute("delete from howdah.consumer")
    await app.close()

    assert row.lag == 3
    assert row.lag_seconds is not None


async def test_a_prepared_append_holds_the_frontier(tight):
    app = Howdah(tight.dsn)
    async with connections_to(tight.dsn) as connect:
        a, b, watch = await connect(), await connect(), Watch(await connect())
        start = await append(b, "S-0")
        await a.execute("begin")
        await append(a)
        await a.execute("prepare transaction 'first'")
        await append(a, "S-2")  # the session is free, and takes its own gate
        assert await watch.frontier() == (start + 2, start, True)
        await a.execute("begin")
        await append(a, "S-3")
        await a.execute("prepare transaction 'second'")
        a.terminate()
        await append(b, "S-2")
        assert await watch.frontier() == (start + 4, start, True)
        holders = (await app.log.admin.status()).holders
        assert [(holder.above, holder.prepared) for holder in holders] == [(start, "first"), (start + 2, "second")]
        await b.execute("commit prepared 'first'")
        assert await watch.frontier() == (start + 4, start + 2, True)
        await b.execute("rollback prepared 'second'")
        assert await watch.frontier() == (start + 4, start + 4, False)
        found = [event.position for event in await app.log.read(after=start)]
        assert found == [start + 1, start + 2, start + 4]
    await app.close()


async def test_a_full_lock_table_loses_nothing(tight):
    async with connections_to(tight.dsn) as connect:
        greedy, a, b, watch = await connect(), await connect(), await connect(), Watch(await connect())
        start = (await watch.frontier())[0]
        await a.execute("begin")
        await append(a, "Full-1")
        await append(b, "Full-2")
        assert await watch.safe() == start
        with pytest.raises(asyncpg.OutOfMemoryError):
            await take_locks_without_end(greedy)
        refused = 0
        for n in range(20):
            try:
                await append(b, f"Full-x{n}")
            except asyncpg.OutOfMemoryError:
                refused += 1
        assert refused
        try:
            assert await watch.safe() == start
        except asyncpg.OutOfMemoryError:
            pass  # no answer is a good answer, a wrong one is not
        greedy.terminate()
        foreign = "select count(*) from pg_locks where locktype = 'advisory' and objsubid = 1"
        await until(lambda: watch.conn.fetchval(foreign), 0)
        assert await watch.safe() == start, "the append from before still holds"
        await a.execute("commit")
        head, safe, held = await watch.frontier()
        assert (safe, held) == (head, False)
        assert await b.fetchval("select count(*) from howdah.event where position > $1", start) == 2 + 20 - refused


async def take_locks_without_end(conn: Any) -> None:
    for first in range(1, 1_000_000, 20):
        await conn.execute(f"select pg_advisory_lock(g) from generate_series({first}, {first + 19}) g")
