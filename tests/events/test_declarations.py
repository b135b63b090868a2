"""Declarations: during a rolling release only nodes whose filter is the current one consume."""

from __future__ import annotations

import asyncio
import json

import pytest

from howdah import Howdah
from howdah.postgres import sql
from kit.consumers import held, owners, registered
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

QUICK = {"rebalance": 0.2, "lease": 5.0}
STATEMENTS = sql.load("howdah.events", schema="howdah")
OLD, NEW = ["A"], ["A", "B"]


def wanting(dsn, types, **settings):
    """An app whose consumer wants these types, and the positions it was given."""
    app, seen = Howdah(dsn), list[int]()

    @app.consumer("orders", types=types, **settings)
    async def orders(event):
        seen.append(event.position)

    return app, seen


async def owned_by(conn, running_node):
    return set((await owners(conn)).values()) == {running_node.node}


async def ancient_node(conn, partitions):
    """A node of the release before that has declared the old types and announced itself; it does nothing by itself."""
    digest = await conn.fetchval("select howdah.declare_scope('orders', $1, null, $2, 0)", partitions, OLD)
    return await conn.fetchval(
        "insert into howdah.node (name, state, consumers, declared) values ('ancient', 'idle', $1, $2) returning id",
        json.dumps({"orders": partitions}).encode(),
        json.dumps({"orders": digest}).encode(),
    )


async def append(app, *types):
    return (await app.log.append("S-1", [{"type": each} for each in types])).position


async def a_minute_later(conn, types):
    """As if no leader had seen a node with these types for another minute."""
    return await conn.fetchval(
        "update howdah.declaration set unseen_at = unseen_at - interval '61 seconds'"
        " where types = $1 and unseen_at is not null returning true",
        types,
    )


@pytest.mark.parametrize("scope", ["types", "only"])
async def test_a_wider_filter_misses_nothing_from_the_first_node_that_has_it(database, conn, scope):
    """The node of the old code lives on and would still own the consumer."""
    old, new = Howdah(database.dsn), Howdah(database.dsn)
    seen: list[str] = []
    for app, names in ((old, ["A"]), (new, ["A", "B"])):

        @app.consumer("orders", **{scope: names})
        async def orders(event):
            seen.append(event.stream)

    async with node(old, **QUICK) as first:
        await eventually(held(conn, first))
        async with node(new, **QUICK) as second:
            await eventually(lambda: registered(conn, 2))
            for kind in "ABAB":
                last = await new.log.append(f"{kind}-1", {"type": kind})
            await new.log.wait_for("orders", last, timeout=30)

            assert sorted(seen) == ["A-1", "A-1", "B-1", "B-1"]
            assert await owned_by(conn, second)
            assert list(getattr((await new.log.admin.consumers("orders"))[0], scope)) == ["A", "B"]
    await old.close()
    await new.close()


async def test_what_the_old_owner_has_under_way_is_refused(database, conn):
    """It read before the new declaration, and would move the checkpoint past the new types behind it."""
    app, _ = wanting(database.dsn, OLD)
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        epoch = await conn.fetchval("select epoch from howdah.consumer_partition")
    await app.close()
    await conn.execute("update howdah.consumer_partition set node = 77")
    epoch, run = await conn.fetchrow("select epoch, howdah.begin_run() from howdah.consumer_partition")
    await conn.fetchval(STATEMENTS["declare"], "orders", 1, None, NEW, 0)

    assert await conn.fetchval(STATEMENTS["move_checkpoint"], "orders", 0, 77, epoch, 0, 9, 0, 1.0, run) is None


async def test_an_old_node_that_is_started_again_takes_nothing_back(database, conn):
    old, _ = wanting(database.dsn, OLD)
    new, seen = wanting(database.dsn, NEW)
    async with node(old, **QUICK) as first:
        await eventually(held(conn, first))  # it declares first, or its declaration would be the newer one
        async with node(new, **QUICK) as second:
            await eventually(lambda: owned_by(conn, second))
            async with node(old, **QUICK):
                await eventually(lambda: registered(conn, 3))
                last = await append(new, "B")
                await new.log.wait_for("orders", last, timeout=30)
                await asyncio.sleep(4 * QUICK["rebalance"])
                assert await owned_by(conn, second)
    assert seen == [last]
    await old.close()
    await new.close()


async def test_a_release_that_is_rolled_back_gives_way_after_a_minute(database, conn):
    old, seen = wanting(database.dsn, OLD)
    new, _ = wanting(database.dsn, NEW)
    async with node(old, **QUICK) as first:
        await eventually(held(conn, first))  # it declares first, or its declaration would be the newer one
        async with node(new, **QUICK) as second:
            await eventually(lambda: owned_by(conn, second))
        await asyncio.sleep(4 * QUICK["rebalance"])
        assert set((await owners(conn)).values()) == {None}, "the new one may just be starting again"

        assert await a_minute_later(conn, NEW), "the leader noticed that its nodes are gone"
        await eventually(lambda: owned_by(conn, first))
        last = await append(old, "A")
        await old.log.wait_for("orders", last, timeout=30)
    assert seen == [last]
    await old.close()
    await new.close()


async def test_a_node_that_is_alone_need_not_wait(database, conn):
    """As on a developer's machine: back and forth, one at a time."""
    for types in (OLD, NEW, OLD, NEW, None, OLD):
        app, seen = wanting(database.dsn, types)
        async with node(app, **QUICK) as only:
            await eventually(lambda only=only: owned_by(conn, only))
            last = await append(app, "A")
            await app.log.wait_for("orders", last, timeout=30)
        assert seen[-1] == last
        await app.close()


async def test_the_order_of_types_does_not_matter(conn):
    digests = [
        await conn.fetchval("select howdah.filter_digest($1, $2)", *given)
        for given in ((None, ["A", "B"]), (None, ["B", "A", "A"]), (["A", "B"], None), (None, ["A,B"]), (None, None))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


async def test_nodes_of_an_old_declaration_own_only_what_they_declared(database, conn):
    """Even if a leader assigns partitions without a look at the declarations."""
    before = "select howdah.declare_scope('orders', 1, null, $1, 0)"
    ancient = await ancient_node(conn, partitions=1)
    assign = "update howdah.consumer_partition set node = $1, epoch = epoch + 1 where node is distinct from $1"
    assert await conn.execute(assign, ancient) == "UPDATE 1", "its own declaration is current"

    new, _ = wanting(database.dsn, NEW)
    async with node(new, rebalance=60.0, lease=60.0) as second:
        await conn.execute("update howdah.node set beat_at = now() + interval '1 hour' where id = $1", ancient)
        await eventually(lambda: owned_by(conn, second))
        epoch = await conn.fetchval("select epoch from howdah.consumer_partition")
        await conn.execute(assign, ancient)
        assert await owned_by(conn, second), "it stays where it is"
        assert await conn.fetchval("select epoch from howdah.consumer_partition") == epoch
        await conn.execute(assign, None)
        await conn.execute(assign, ancient)
        assert await owned_by(conn, second), "or goes to a node that may have it"
        await conn.execute(before, OLD)
        assert await owned_by(conn, second), "also when an old node is started again"
    await new.close()


async def test_nodes_of_both_releases_share_a_consumer_whose_filter_did_not_change(database, conn):
    ancient = await ancient_node(conn, partitions=2)
    await conn.execute("update howdah.node set beat_at = now() + interval '1 hour' where id = $1", ancient)
    app, _ = wanting(database.dsn, OLD, partitions=2)
    async with node(app, **QUICK) as second:
        await eventually(lambda: shared(conn, {ancient, second.node}))
    await app.close()


async def shared(conn, nodes):
    return set((await owners(conn)).values()) == nodes


async def test_epochs_rise_and_cannot_be_guessed(conn):
    """A standby that is promoted counts on from the same epoch as the old primary did."""
    await conn.execute("select howdah.declare_scope('orders', 1, null, null, 0)")
    epochs, twins = [await conn.fetchval("select epoch from howdah.consumer_partition")], set()
    for _ in range(20):
        around = conn.transaction()
        await around.start()
        twins.add(await conn.fetchval("update howdah.consumer_partition set epoch = epoch + 1 returning epoch"))
        await around.rollback()
        epochs.append(
            await conn.fetchval("update howdah.consumer_partition set node = 5, epoch = epoch + 1 returning epoch")
        )
    assert epochs == sorted(set(epochs))
    assert not twins & set(epochs)
    assert epochs[-1] < 2**53
