"""Drain: a node that somebody asked to, takes no more and ends."""

from __future__ import annotations

import asyncio

import pytest

from howdah import ConfigError, Event, NewEvent
from kit.node import eventually, quick

pytestmark = pytest.mark.anyio


@pytest.fixture
async def busy(app):
    app.gate, app.seen = asyncio.Event(), []

    @app.task
    async def wait() -> None:
        await app.gate.wait()

    @app.consumer("reader", start="beginning")
    async def read(event: Event) -> None:
        app.seen.append(event.position)

    yield app
    app.gate.set()
    await app.close()


async def test_a_node_asked_to_drain_finishes_what_it_runs_takes_no_more_and_ends(busy, conn):
    first = await busy.tasks["wait"].enqueue()
    await busy.log.append("Order-1", NewEvent(type="Placed", data={}))
    running_node = busy.node(quick(slots=1, grace=60, rebalance=0.2))
    running = asyncio.create_task(running_node.run())
    await eventually(lambda: busy.admin.list("running"), 20)
    [node] = await busy.admin.nodes()

    name = await busy.admin.drain(node.id)
    [asked] = await busy.admin.nodes()
    await eventually(lambda: _draining(running_node), 20)
    second = await busy.tasks["wait"].enqueue()
    beats = asked.beat_at
    await eventually(lambda: conn.fetchval("select beat_at > $1 from howdah.node", beats), 20)
    [still] = await busy.admin.nodes()
    ended_early = running.done()
    busy.gate.set()
    await asyncio.wait_for(running, 60)

    assert name == node.name
    assert (asked.state, still.state, ended_early) == ("draining", "draining", False)
    assert (await busy.admin.get(first.id)).state == "done"
    assert (await busy.admin.get(second.id)).state == "queued"
    [gone] = await busy.admin.nodes(all=True)
    assert gone.state == "offline"


async def _draining(running_node) -> bool:
    return all(worker.draining for worker in running_node.workers)


async def test_draining_sticks_whatever_the_node_says_of_itself(conn, busy):
    from howdah.postgres import sql

    id = await conn.fetchval("insert into howdah.node (name) values ('a:1') returning id")
    await busy.admin.drain(id)
    beat = sql.load("howdah.node", schema="howdah")["heartbeat"]
    row = await conn.fetchrow(beat, id, [], 30.0, "busy", 1, False, 0)

    assert row["leaving"] is True
    assert await conn.fetchval("select state from howdah.node") == "draining"


async def test_only_a_node_that_lives_can_drain(busy, conn):
    id = await conn.fetchval("insert into howdah.node (name, state) values ('a:1', 'offline') returning id")

    with pytest.raises(ConfigError, match="node 1 is offline, so there is nothing to drain"):
        await busy.admin.drain(id)
    with pytest.raises(ConfigError, match="there is no node 99; `howdah nodes` lists them"):
        await busy.admin.drain(99)
    assert await conn.fetchval("select leaving from howdah.node") is False
    assert await conn.fetchval("select count(*) from howdah.audit") == 0
