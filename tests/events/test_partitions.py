"""One consumer in parts: shared by nodes, in order within a stream; and another number of parts while events flow."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from howdah import Howdah
from howdah.postgres import sql
from kit.consumers import held, owners, registered
from kit.interleave import switch_off
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

QUICK = {"rebalance": 0.2, "lease": 5.0}


@pytest.fixture
async def seen(conn):
    await conn.execute("create table seen (id bigint generated always as identity, position bigint)")
    return conn


def parted(dsn, partitions, *, fails=None, other=False, **settings):
    """An app with one consumer in parts, which fails on events of the streams in ``fails``."""
    app = Howdah(dsn)

    @app.consumer("orders", **{"partitions": partitions, "batch": 7, "max_failures": 1, **settings})
    async def orders(event, tx):
        if fails and event.stream in fails:
            raise ValueError("on purpose")
        await tx.execute("insert into seen (position) values ($1)", event.position)

    if other:

        @app.consumer("other")
        async def others(event): ...

    return app


@asynccontextmanager
async def load(app):
    """Append to some streams, beside the block; gives the function that ends it and says what the last position is."""
    chance, stop, last = random.Random(5), asyncio.Event(), 0

    async def run():
        nonlocal last
        while not stop.is_set():
            count = chance.randrange(1, 4)
            made = await app.log.append(f"S-{chance.randrange(12)}", [{"type": "T"}] * count)
            last = made.position
            await asyncio.sleep(0.002)

    running = asyncio.create_task(run())

    async def end():
        stop.set()
        await running
        return last

    try:
        yield end
    finally:
        await end()


async def assert_once_and_in_order(conn):
    """Every event of the log was applied once, and the versions of every stream rose."""
    rows = await conn.fetch(
        """select e.position, e.stream_id, e.version from seen s join howdah.event e using (position) order by s.id"""
    )
    assert sorted(row["position"] for row in rows) == [
        row["position"] for row in await conn.fetch("select position from howdah.event order by 1")
    ]
    streams = {}
    for row in rows:
        streams.setdefault(row["stream_id"], []).append(row["version"])
    assert all(versions == list(range(1, len(versions) + 1)) for versions in streams.values())
    assert len(streams) > 6


async def partitions(conn):
    """The number of partitions, and whether there are as many rows and checkpoints."""
    return await conn.fetchval(
        """select case when c.upto is null and c.partitions = (select count(*) from howdah.consumer_partition)
            and c.partitions = (select count(*) from howdah.checkpoint) then c.partitions end
        from howdah.consumer c where c.name = 'orders'"""
    )


async def test_parts_are_spread_over_nodes_and_keep_the_order_of_every_stream(database, conn, seen):
    app = parted(database.dsn, 5)
    async with node(app, **QUICK) as one, node(app, **QUICK) as two, node(app, **QUICK) as three:
        await eventually(held(conn, one, two, three))
        async with load(app) as end:
            await eventually(lambda: grown(conn, 400))
            await app.log.wait_for("orders", await end())
        rows = await app.log.admin.consumers("orders")

    assert [(row.name, row.partitions) for row in rows] == [(f"orders#{part}", 5) for part in range(5)]
    assert sum(row.handled for row in rows) == await conn.fetchval("select count(*) from howdah.event")
    assert sorted([row.node for row in rows].count(each.node) for each in (one, two, three)) == [1, 2, 2]
    wrong = "select count(*) from howdah.event where howdah.partition_of(stream_type, stream_id, 5) not between 0 and 4"
    assert await conn.fetchval(wrong) == 0
    await assert_once_and_in_order(conn)
    await app.close()


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 5), (5, 2), (3, 1)])
async def test_another_number_of_parts_while_events_flow(database, conn, seen, before, after):
    """Old and new nodes run together for a while; the change comes when the last old one has gone."""
    old, new = parted(database.dsn, before), parted(database.dsn, after)
    async with node(old, **QUICK) as first, load(old) as end:
        await eventually(held(conn, first))
        await eventually(lambda: grown(conn, 50))
        async with node(old, **QUICK) as second, node(new, **QUICK), node(new, **QUICK):
            await eventually(lambda: registered(conn, 4))
            first.stop()
            await eventually(lambda: registered(conn, 3))
            await asyncio.sleep(4 * QUICK["rebalance"])
            assert await partitions(conn) == before, "an old node is still there"

            second.stop()
            await eventually(lambda: is_now(conn, after))
            await grow(conn, 100)
            await new.log.wait_for("orders", await end())

    await assert_once_and_in_order(conn)
    await old.close()
    await new.close()


async def test_up_and_down_again_and_again(database, conn, seen):
    app = parted(database.dsn, 1)
    async with load(app) as end:
        for number in (4, 2, 7, 1, 3):
            async with node(parted(database.dsn, number), **QUICK), node(parted(database.dsn, number), **QUICK):
                await eventually(lambda number=number: is_now(conn, number))
                await grow(conn, 60)
        last = await end()
        async with node(parted(database.dsn, 2), **QUICK):
            await app.log.wait_for("orders", last)

    await assert_once_and_in_order(conn)
    await app.close()


async def test_a_halted_part_holds_up_the_change_and_nothing_else(database, conn, seen):
    """Its other parts go on, so do other consumers, and the change comes once it is resumed."""
    bad = {"S-1"}
    old, new = parted(database.dsn, 3, fails=bad, other=True), parted(database.dsn, 2, fails=bad, other=True)
    async with node(old, **QUICK) as first:
        await eventually(held(conn, first))
        await old.log.append("S-1", {"type": "T"})
        await old.log.append_many((f"S-{n}", {"type": "T"}) for n in range(2, 30))
        [halted] = await eventually(lambda: in_state(old, "halted"))
    async with node(new, **QUICK) as second:
        await eventually(held(conn, second))
        made = await new.log.append_many((f"S-{n}", {"type": "T"}) for n in range(2, 30))
        await new.log.wait_for("other", made)
        await eventually(lambda: at(conn, made, but=halted.part))
        await asyncio.sleep(4 * QUICK["rebalance"])
        assert [row.part for row in await in_state(new, "halted")] == [halted.part]
        assert await conn.fetchval("select partitions from howdah.consumer where name = 'orders'") == 3

        bad.clear()
        await new.log.admin.resume("orders")
        await eventually(lambda: is_now(conn, 2, other=1))
        await new.log.wait_for("orders", made)
    await assert_once_and_in_order(conn)
    await old.close()
    await new.close()


async def test_a_checkpoint_that_is_locked_holds_up_the_change_but_no_assignment(database, conn, direct, seen):
    old, new = parted(database.dsn, 2), parted(database.dsn, 3, other=True)
    async with node(old, **QUICK) as first:
        await eventually(held(conn, first))
    async with conn.transaction():
        await conn.execute("select from howdah.checkpoint where consumer = 'orders' for update")
        async with node(new, **QUICK) as second:
            looking = await direct.connect("looking")
            await eventually(lambda: owned(looking, "other", second))
            await eventually(lambda: owned(looking, "orders", second))
            assert (
                await looking.fetchval("select count(*) from howdah.consumer_partition where consumer = 'orders'") == 2
            )
            await looking.close()
    async with node(new, **QUICK):
        await eventually(lambda: is_now(conn, 3, other=1))
    await old.close()


async def test_a_change_under_way_is_given_up_when_a_node_of_the_old_code_joins(database, conn, seen):
    """Else all parts would wait at one position until it leaves."""
    old, new = parted(database.dsn, 3), parted(database.dsn, 4)
    async with node(old, **QUICK) as first:
        await eventually(held(conn, first))
        async with node(new, **QUICK):
            await eventually(lambda: registered(conn, 2))
            await conn.execute("update howdah.consumer set upto = 0")
            await conn.execute("update howdah.consumer_partition set epoch = epoch + 1")
            for stream in range(12):
                made = await old.log.append(f"S-{stream}", {"type": "T"})
            await old.log.wait_for("orders", made, timeout=30)
            assert await partitions(conn) == 3
    await assert_once_and_in_order(conn)
    await old.close()
    await new.close()


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_part_that_retries_holds_up_no_other_part(conn, guarded):
    """Unguarded, the others stop at the position of the furthest one until it has succeeded."""
    if not guarded:
        await switch_off(conn, "reshape", "k.halted or k.failures > 0", "k.halted")
    await conn.execute("select howdah.declare_scope('orders', 2, null, null, 0)")
    await conn.execute("update howdah.checkpoint set position = 5 + 4 * part, failures = 1 - part")
    reshape, upto = "select howdah.reshape('orders', 3)", "select upto from howdah.consumer"

    assert (await conn.fetchval(reshape), await conn.fetchval(upto)) == (False, None if guarded else 9)
    if not guarded:
        return
    await conn.execute("update howdah.checkpoint set failures = 0")
    assert (await conn.fetchval(reshape), await conn.fetchval(upto)) == (False, 9)
    await conn.execute("update howdah.checkpoint set failures = 1 where part = 0")
    assert (await conn.fetchval(reshape), await conn.fetchval(upto)) == (False, None), (
        "also when it begins to retry now"
    )


async def test_the_change_step_by_step(database, conn, seen):
    """All parts come to one position first; a batch that was under way is refused; a change can be taken back."""
    settle = sql.load("howdah.events", schema="howdah")["move_checkpoint"]
    await conn.execute("select howdah.append('S-' || n, '{\"type\": \"T\"}') from generate_series(1, 20) n")
    await conn.execute("select howdah.declare_scope('orders', 2, null, null, 0)")
    await conn.execute("update howdah.consumer_partition set node = 1")
    await conn.execute("update howdah.checkpoint set position = 5 + 4 * part")
    await conn.execute(
        """insert into howdah.parked (consumer, position, part, error, message, traceback, failures)
        select 'orders', position, howdah.partition_of(stream_type, stream_id, 2), '', '', '', 1 from howdah.event"""
    )

    run = await conn.fetchval("select howdah.begin_run()")

    async def reshape(number):
        return await conn.fetchval("select howdah.reshape('orders', $1)", number)

    async def epoch(part=0):
        return await conn.fetchval("select epoch from howdah.consumer_partition where part = $1", part)

    async def stands():
        return [
            tuple(row)
            for row in await conn.fetch(
                """select part, k.position, s.epoch >> 24, c.upto
                from howdah.checkpoint k join howdah.consumer_partition s
                using (consumer, part) join howdah.consumer c on c.name = consumer order by part"""
            )
        ]

    before = await epoch()
    assert await reshape(3) is False
    assert await stands() == [(0, 5, 2, 9), (1, 9, 2, 9)]
    assert await reshape(3) is False
    assert await stands() == [(0, 5, 2, 9), (1, 9, 2, 9)], "nobody is disturbed twice"
    assert await conn.fetchval(settle, "orders", 0, 1, before, 5, 9, 1, 0.0, run) is None, "a batch from before"
    assert await reshape(2) is True
    assert await stands() == [(0, 5, 3, None), (1, 9, 3, None)]

    assert await reshape(3) is False
    other = await epoch(1)
    assert await conn.fetchval(settle, "orders", 0, 1, await epoch(), 5, 9, 1, 0.0, run) is True
    assert await reshape(3) is True
    assert await stands() == [(part, 9, 5, None) for part in range(3)]
    assert set((await owners(conn)).values()) == {None}
    assert await conn.fetchval(settle, "orders", 1, 1, other, 9, 12, 1, 0.0, run) is None
    wrong = """select count(*) from howdah.parked p join howdah.event e using (position)
        where p.part <> howdah.partition_of(e.stream_type, e.stream_id, 3)"""
    assert await conn.fetchval(wrong) == 0
    assert await reshape(3) is True
    assert await stands() == [(part, 9, 5, None) for part in range(3)]


# ---------------------------------------------------------------- what is looked at


async def is_now(conn, number, other=0):
    found = await conn.fetchval("select count(*) from howdah.consumer_partition where node is not null")
    return found == number + other and await conn.fetchval(
        "select partitions = $1 and upto is null from howdah.consumer where name = 'orders'", number
    )


async def grown(conn, events):
    return await conn.fetchval("select count(*) > $1 from seen", events)


async def grow(conn, events):
    """Wait until so many more have been applied."""
    so_far = await conn.fetchval("select count(*) from seen")
    await eventually(lambda: grown(conn, so_far + events))


async def in_state(app, state):
    return [row for row in await app.log.admin.consumers("orders") if row.state == state]


async def at(conn, position, *, but):
    return await conn.fetchval(
        "select min(position) >= $1 from howdah.checkpoint where consumer = 'orders' and part <> $2", position, but
    )


async def owned(conn, name, running_node):
    rows = await conn.fetch("select node from howdah.consumer_partition where consumer = $1", name)
    return rows and {row["node"] for row in rows} == {running_node.node}
