"""Which declaration of a consumer is the current one after an outage, a rollback, a freeze, or a clock change."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from howdah import Howdah
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.doctor import events as doctor_log
from howdah.postgres import sql
from kit.consumers import registered
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

STATEMENTS = sql.load("howdah.events", schema="howdah")
DEAD = 30.0
OLD, NEW = ["A"], ["A", "B"]
QUICK = {"rebalance": 0.2, "lease": 5.0}


class Nodes:
    """Nodes of two releases, as their statements write them."""

    def __init__(self, conn):
        self.conn = conn

    async def start(self, types, *, announce=True):
        """A process that starts: it declares, then it is known to have the consumer."""
        digest = await self.conn.fetchval(STATEMENTS["declare"], "orders", 1, None, types, 0)
        node = await self.conn.fetchval("insert into howdah.node (name, state) values ('n', 'idle') returning id")
        if announce:
            digests = json.dumps({"orders": 1}), json.dumps({"orders": digest})
            await self.conn.fetch(STATEMENTS["announce"], node, *digests)
        return node

    async def silent(self, *nodes, minutes=2):
        """No heartbeat of these nodes has arrived for so long."""
        silence = timedelta(minutes=minutes)
        await self.conn.execute(
            "update howdah.node set beat_at = now() - $2::interval where id = any($1::int[])", nodes, silence
        )

    async def stop(self, node):
        """A process ends by itself."""
        await self.conn.execute(sql.load("howdah.node", schema="howdah")["deregister"], node)

    async def heard(self, *nodes):
        await self.conn.execute("update howdah.node set beat_at = now() where id = any($1::int[])", nodes)

    async def judge(self):
        """What the leader does; returns the nodes that it bars."""
        return {row["node"] for row in await self.conn.fetch(STATEMENTS["replace_declarations"], DEAD)}

    async def current(self):
        return await self.conn.fetchval("select types from howdah.consumer")

    async def later(self, **since):
        """So much time passes, for all that is stored about declarations."""
        await self.conn.execute(
            """update howdah.declaration set seen_at = seen_at - $1::interval, unseen_at = unseen_at - $1::interval,
                declared_at = declared_at - $1::interval""",
            timedelta(**since),
        )


@pytest.fixture
def nodes(conn):
    return Nodes(conn)


async def test_after_an_outage_the_node_that_returns_first_does_not_take_the_consumer(nodes):
    """The server was away for two minutes during a release; the leader has the old declaration and returns first."""
    old, new = await nodes.start(OLD), await nodes.start(NEW)
    assert await nodes.judge() == {old}
    await nodes.later(minutes=2)
    await nodes.silent(new)

    for _ in range(3):
        assert await nodes.judge() == {old}
    assert await nodes.current() == NEW
    await nodes.heard(new)
    await nodes.judge()
    await nodes.later(minutes=2)
    await nodes.silent(new)
    await nodes.judge()
    assert await nodes.current() == NEW, "each absence is counted anew"


async def test_a_minute_that_leaders_watched_is_enough(nodes):
    """The control: a release that is rolled back gives way."""
    await nodes.start(OLD)
    new = await nodes.start(NEW)
    await nodes.silent(new)
    await nodes.judge()
    assert await nodes.current() == NEW
    await nodes.later(seconds=61)
    await nodes.judge()
    assert await nodes.current() == OLD


async def test_a_frozen_node_of_a_release_that_was_rolled_back_takes_nothing_when_it_wakes_up(nodes):
    old, new = await nodes.start(OLD), await nodes.start(NEW)
    await nodes.silent(new)
    await nodes.judge()
    await nodes.later(seconds=61)
    await nodes.judge()
    await nodes.heard(new)

    for _ in range(3):
        assert await nodes.judge() == {new}
    assert await nodes.current() == OLD

    await nodes.start(NEW)
    assert await nodes.current() == NEW, "a node that is started with it is a release"
    assert await nodes.judge() == {old}


async def test_a_frozen_node_alone_consumes_again(nodes):
    """Also one whose declaration was withdrawn: no other node is left."""
    old, new = await nodes.start(OLD), await nodes.start(NEW)
    await nodes.silent(new)
    await nodes.judge()
    await nodes.later(seconds=61)
    await nodes.judge()
    await nodes.heard(new)
    await nodes.silent(old)
    await nodes.judge()
    assert await nodes.current() == OLD, "not before a minute"
    await nodes.later(seconds=61)
    await nodes.judge()
    assert await nodes.current() == NEW


@pytest.mark.parametrize("written_off", [False, True])
async def test_an_old_node_that_starts_right_after_an_outage_does_not_take_the_consumer(nodes, conn, written_off):
    """The nodes of the new release return a moment later; another node may have found their leases expired."""
    await nodes.start(OLD)
    new = await nodes.start(NEW)
    await nodes.silent(new)
    if written_off:
        await conn.execute("select howdah.reset(100)")
        assert await conn.fetchval("select state from howdah.node where id = $1", new) == "offline"
    await nodes.start(OLD)
    assert await nodes.current() == NEW
    await nodes.judge()
    await nodes.later(seconds=61)
    await nodes.judge()
    assert await nodes.current() == OLD, "they did not return"


async def test_an_old_node_takes_the_consumer_when_the_new_ones_stopped(nodes):
    """The control: a release that is rolled back all at once."""
    await nodes.stop(await nodes.start(NEW))
    await nodes.start(OLD)
    await nodes.stop(await nodes.start(NEW))
    await nodes.start(OLD)
    assert await nodes.current() == OLD


async def test_an_old_node_started_while_the_new_ones_are_out_of_reach_gives_the_consumer_back(nodes):
    """It found no live node with the current declaration. Else it would keep the consumer until it ends."""
    first, new = await nodes.start(OLD), await nodes.start(NEW)
    await nodes.silent(first, new, minutes=11)
    second = await nodes.start(OLD)
    assert await nodes.current() == OLD
    await nodes.heard(first, new)

    assert await nodes.judge() == {first, second}
    assert await nodes.current() == NEW


@pytest.mark.parametrize("hours", [0, 1])
async def test_a_new_declaration_is_the_newest_although_the_clock_of_the_server_went_back(nodes, hours):
    """As in a failover to a host whose clock is an hour behind. At 0: the control."""
    old = await nodes.start(OLD)
    await nodes.later(hours=-hours)
    await nodes.heard(old)
    await nodes.start(NEW)
    assert await nodes.current() == NEW
    assert await nodes.judge() == {old}


async def test_numbers_of_partitions_that_nodes_disagree_on_are_reported(database, conn, caplog, monkeypatch):
    apps = [Howdah(database.dsn), Howdah(database.dsn)]
    for app, number in zip(apps, (2, 3), strict=True):

        @app.consumer("orders", partitions=number)
        async def orders(event): ...

    async def consumers():
        return [each for each in await Doctor(database).examine() if each.name == "consumers"]

    async with node(apps[0], **QUICK):
        await eventually(lambda: registered(conn, 1))
        monkeypatch.setattr(doctor_log, "RELEASE", 0.0)
        assert [each.verdict for each in await consumers()] == ["ok"], "the control"
        async with node(apps[1], **QUICK):
            await eventually(lambda: registered(conn, 2))
            [found] = await consumers()
            monkeypatch.setattr(doctor_log, "RELEASE", 3600.0)
            assert [each.verdict for each in await consumers()] == ["ok"], "a release is under way"

            async def published():
                return "with different numbers of partitions (2, 3); it keeps 2" in caplog.text

            await eventually(published)
    assert found.verdict == "warn"
    assert found.fact.startswith("orders is declared with different numbers of partitions (2 by ")
    assert found.fact.endswith(", and keeps 2")
    for app in apps:
        await app.close()
