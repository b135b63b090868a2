"""Waiting for a connection of the node's own pool is nobody's failure, and no handler's time."""

from __future__ import annotations

import asyncio

import pytest

from kit.consumers import held
from kit.node import consumers_of, eventually, node

pytestmark = pytest.mark.anyio

TIMEOUT = 1.0


@pytest.fixture(autouse=True)
def one_connection(monkeypatch):
    """The consumers of a node share a single connection."""
    monkeypatch.setattr("howdah.events.consumers.MOST_CONNECTIONS", 1)


async def faultless(app):
    return all((row.failures, row.state) == (0, "running") for row in await app.log.admin.consumers("busy"))


async def test_parts_that_take_turns_on_few_connections_do_not_fail(app, conn):
    """Each batch is short; the last of them waits for several times the timeout."""
    handled = []

    @app.consumer("busy", partitions=12, timeout=TIMEOUT, max_failures=1)
    async def busy(event, tx):
        await asyncio.sleep(TIMEOUT / 4)
        handled.append(event.stream)

    async with node(app) as running_node:
        await eventually(held(conn, running_node))
        for stream in range(20):
            made = await app.log.append(f"S-{stream}", {"type": "T"})
        await app.log.wait_for("busy", made, timeout=60)
        assert await faultless(app)
    assert sorted(handled) == sorted({f"S-{stream}" for stream in range(20)}), "each once"


async def test_a_handler_is_not_run_again_because_its_checkpoint_waits_for_a_connection(app, conn):
    begun, go, handled = asyncio.Event(), asyncio.Event(), []

    @app.consumer("busy", timeout=TIMEOUT, max_failures=1)
    async def busy(event):
        handled.append(event.position)
        begun.set()
        await go.wait()

    async with node(app) as running_node:
        await eventually(held(conn, running_node))
        made = await app.log.append("S-1", {"type": "T"})
        await asyncio.wait_for(begun.wait(), 30)
        async with consumers_of(running_node)._pool.acquire():
            go.set()
            await asyncio.sleep(2.5 * TIMEOUT)
        await app.log.wait_for("busy", made, timeout=30)
        assert await faultless(app)
    assert handled == [made.position]


async def test_a_handler_that_takes_too_long_is_still_found(app, conn):
    """The clock runs while the handler does."""

    @app.consumer("busy", timeout=0.2, max_failures=1)
    async def busy(event, tx):
        await asyncio.sleep(60)

    async with node(app):
        await app.log.append("S-1", {"type": "T"})
        await eventually(lambda: conn.fetchval("select halted from howdah.checkpoint"))
    [row] = await app.log.admin.consumers("busy")
    assert (row.error, row.failures) == ("Overran", 1)
