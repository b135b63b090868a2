"""Workers without a database inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from howdah import Howdah
from howdah.fleet.client import Client
from howdah.fleet.remote import RemoteConductor
from kit import errands
from kit.node import ended, eventually, quick

JOB = "select * from howdah.jobs where id = $1"


@asynccontextmanager
async def remote(plane: Any, app: Howdah = errands.app, **options: Any) -> AsyncIterator[RemoteConductor]:
    """A worker at work while the block lasts."""
    conductor = RemoteConductor(app, quick(**options), lambda: Client(plane.url, plane.tokens["work"]))
    running = asyncio.create_task(conductor.run())
    try:
        yield conductor
    finally:
        conductor.stop()
        await asyncio.wait_for(running, 60)


async def result(conn: Any, id: int) -> Any:
    """What a job returned, once it is over."""
    row = await ended(conn, id)
    return msgspec.json.decode(row["result"]) if row["result"] else None


async def registered(conductor: RemoteConductor) -> int:
    """The number of a worker, once it takes work."""

    async def known() -> int:
        return conductor.node if conductor.ready else 0

    return int(await eventually(known))


async def runs(conductor: RemoteConductor) -> None:
    """Wait until it runs something."""

    async def something() -> bool:
        return bool(conductor.running)

    await eventually(something)
