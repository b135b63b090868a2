"""Running nodes inside a test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from howdah import Howdah, WorkerOptions
from howdah.node.node import Node
from howdah.node.registry import DatabaseContext

POLL_ONLY = bool(os.environ.get("HOWDAH_TEST_POLL_ONLY"))
EVENTUALLY_TIMEOUT = 30.0
"""Seconds a test waits for what must come: long enough for a machine with other things to do, and well below the times
(polls, leases, waits of a minute) a test sets so high that they cannot be what helped."""
QUICK: dict[str, Any] = {"lease": 2.0, "heartbeat": 0.25, "poll": 0.5, "grace": 5.0, "notify": not POLL_ONLY}


def quick(**options: Any) -> WorkerOptions:
    """Options with short times."""
    return WorkerOptions(**{**QUICK, **options})


@asynccontextmanager
async def node(app: Howdah, *, upkeep: bool = True, **options: Any) -> AsyncIterator[Node[DatabaseContext]]:
    """A node that works while the context lasts, then drains."""
    running_node = app.node(quick(**options), upkeep=upkeep)
    running = asyncio.create_task(running_node.run())
    try:
        yield running_node
    finally:
        running_node.stop()
        await asyncio.wait_for(running, 2 * EVENTUALLY_TIMEOUT)


def consumers_of(running_node: Node[Any]) -> Any:
    """The consumers of a node; ``None`` until it has started, and if it has none."""
    return next(iter(running_node.services), None)


async def drain(app: Howdah, **options: Any) -> None:
    """Work until nothing is left to do now."""
    await asyncio.wait_for(app.node(quick(drain=True, **options), upkeep=False).run(), 3 * EVENTUALLY_TIMEOUT)


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = EVENTUALLY_TIMEOUT) -> Any:
    """Wait until ``check`` is true; returns what it said."""
    until = time.monotonic() + seconds
    while not (result := await check()):
        if time.monotonic() > until:
            raise AssertionError(f"did not come true within {seconds} s")
        await asyncio.sleep(0.02)
    return result


async def job(conn: Any, id: int) -> Any:
    """The row of one job."""
    return await conn.fetchrow("select * from howdah.jobs where id = $1", id)


async def state(conn: Any, id: int) -> str:
    return str((await job(conn, id))["state"])


async def ended(conn: Any, id: int, seconds: float = EVENTUALLY_TIMEOUT) -> Any:
    """The row of one job once it is over."""

    async def over() -> Any:
        row = await job(conn, id)
        return row if row["state"] in ("done", "failed", "cancelled") else None

    return await eventually(over, seconds)
