"""A node that stops: the batch at hand is finished, then another node takes over at once."""

from __future__ import annotations

import asyncio

import pytest

from kit.consumers import following, held, registered
from kit.node import eventually, node, quick

pytestmark = pytest.mark.anyio

PATIENT = {"rebalance": 0.3, "heartbeat": 0.2, "lease": 60.0}
"""Nobody is taken for dead within a test."""


class Gate:
    """A consumer that waits in the middle of its first event, and leaves a mark for every one."""

    def __init__(self, conn):
        self.conn = conn
        self.entered, self.finish = asyncio.Event(), asyncio.Event()
        self.entries = 0

    async def __call__(self, name, event, tx):
        await tx.execute("insert into mark values ($1)", event.position)
        self.entries += 1
        if not self.entered.is_set():
            self.entered.set()
            await self.finish.wait()

    async def marks(self):
        return [row["position"] for row in await self.conn.fetch("select position from mark order by 1")]


@pytest.fixture
async def gate(conn):
    await conn.execute("create table mark (position bigint)")
    return Gate(conn)


@pytest.mark.parametrize("notify", [True, False])
async def test_the_batch_at_hand_is_finished_and_then_another_node_goes_on(database, conn, gate, notify):
    """Nobody takes it away in between, though the node says that it drains, and nobody handles the batch twice."""
    app, _ = following(database.dsn, "a", handler=gate)
    async with node(app, **PATIENT, notify=notify) as first:
        await eventually(held(conn, first))
        async with node(app, **PATIENT, notify=notify) as second:
            await eventually(lambda: registered(conn, 2))
            one = await app.log.append("S-1", [{"type": "T"}, {"type": "T"}])
            await asyncio.wait_for(gate.entered.wait(), 30)
            first.stop()
            await eventually(lambda: draining(conn, first))
            await asyncio.sleep(4 * PATIENT["rebalance"])
            assert await held(conn, first)()
            assert await gate.marks() == []
            gate.finish.set()

            await eventually(held(conn, second))
            assert await gate.marks() == [1, 2]
            assert gate.entries == 2
            two = await app.log.append("S-1", {"type": "T"})
            await app.log.wait_for("a", two, timeout=30)
    assert await gate.marks() == [1, one.position, two.position]
    assert (
        await conn.fetchval("select count(*) from howdah.node where state <> 'offline' or consumers is not null") == 0
    )
    await app.close()


async def test_a_node_with_a_long_job_left_hands_its_consumers_over_at_once(direct, conn):
    """Jobs may take until the end of the grace; consumers do not wait for them."""
    started, finish = asyncio.Event(), asyncio.Event()
    app, _ = following(direct.dsn, "a")

    @app.task
    async def long():
        started.set()
        await finish.wait()

    times = {**PATIENT, "rebalance": 30.0, "notify": True}
    async with node(app, **times, grace=30.0) as first:
        await long.enqueue()
        await asyncio.wait_for(started.wait(), 30)
        await eventually(held(conn, first))
        async with node(app, **times) as second:
            await eventually(lambda: registered(conn, 2))
            first.stop()
            try:
                await eventually(held(conn, second))
                assert len(first.running) == 1
            finally:
                finish.set()
    await app.close()


async def test_a_draining_node_is_given_nothing_new(database, conn, gate):
    app, _ = following(database.dsn, "a", handler=gate)
    async with node(app, **PATIENT) as first:
        await eventually(held(conn, first))
        await app.log.append("S-1", {"type": "T"})
        await asyncio.wait_for(gate.entered.wait(), 30)
        first.stop()
        await eventually(lambda: draining(conn, first))
        other, _ = following(database.dsn, "a", "b", "c")
        async with node(other, **PATIENT) as second:
            await eventually(lambda: owns(conn, "b", second))
            await eventually(lambda: owns(conn, "c", second))
            assert await owns(conn, "a", first)
            gate.finish.set()
            await eventually(held(conn, second))
    assert await gate.marks() == [1]
    await app.close()


async def test_stopping_now_rolls_the_batch_back_and_another_node_does_it(database, conn, gate):
    app, _ = following(database.dsn, "a", handler=gate)
    async with node(app, **PATIENT) as first:
        await eventually(held(conn, first))
        async with node(app, **PATIENT) as second:
            made = await app.log.append("S-1", {"type": "T"})
            await asyncio.wait_for(gate.entered.wait(), 30)
            first.stop(now=True)

            await eventually(held(conn, second))
            await app.log.wait_for("a", made, timeout=30)
    assert not gate.finish.is_set()
    assert gate.entries == 2
    assert await gate.marks() == [made.position]
    await app.close()


async def test_a_batch_that_outlasts_the_grace_is_rolled_back(database, conn, gate):
    app, _ = following(database.dsn, "a", handler=gate)
    running_node = app.node(quick(**PATIENT, grace=0.3), upkeep=False)
    running = asyncio.create_task(running_node.run())
    await eventually(held(conn, running_node))
    made = await app.log.append("S-1", {"type": "T"})
    await asyncio.wait_for(gate.entered.wait(), 30)
    running_node.stop()
    await asyncio.wait_for(running, 30)

    assert await gate.marks() == []
    row = await conn.fetchrow(
        "select k.position, k.failures, s.node from howdah.checkpoint k, howdah.consumer_partition s"
    )
    assert tuple(row) == (0, 0, None)
    async with node(app, **PATIENT):
        await app.log.wait_for("a", made, timeout=30)
    assert await gate.marks() == [made.position]
    await app.close()


async def test_a_node_that_is_alone_leaves_its_consumers_waiting_and_the_next_one_finds_them(database, conn):
    app, seen = following(database.dsn, "a")
    async with node(app, **PATIENT) as first:
        await eventually(held(conn, first))
    made = await app.log.append("S-1", {"type": "T"})
    [row] = await app.log.admin.consumers()
    assert (row.state, row.node, row.lag) == ("unassigned", None, 1)

    async with node(app, **{**PATIENT, "rebalance": 30.0}) as second:
        await eventually(held(conn, second))
        await app.log.wait_for("a", made, timeout=30)
    assert seen == [("a", made.position)]
    await app.close()


async def draining(conn, running_node):
    return await conn.fetchval("select state = 'draining' from howdah.node where id = $1", running_node.node)


async def owns(conn, name, running_node):
    return (
        await conn.fetchval("select node from howdah.consumer_partition where consumer = $1", name) == running_node.node
    )
