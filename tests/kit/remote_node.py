"""Remote nodes inside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from howdah import Howdah
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from kit import remote_app
from kit.node import ended, eventually, quick

JOB = "select * from howdah.jobs where id = $1"


@asynccontextmanager
async def remote(plane: Any, app: Howdah = remote_app.app, **options: Any) -> AsyncIterator[RemoteNode]:
    """Run a remote node while the block lasts."""
    remote_node = RemoteNode(app, quick(**options), lambda: ControlPlaneClient(plane.url, plane.tokens["work"]))
    running = asyncio.create_task(remote_node.run())
    try:
        yield remote_node
    finally:
        remote_node.stop()
        await asyncio.wait_for(running, 60)


async def result(conn: Any, id: int) -> Any:
    """Return the result of a job, once it has finished."""
    row = await ended(conn, id)
    return msgspec.json.decode(row["result"]) if row["result"] else None


async def registered(remote_node: RemoteNode) -> int:
    """Return the id of a node, once it claims jobs."""

    async def known() -> int:
        return remote_node.node if remote_node.ready else 0

    return int(await eventually(known))


async def runs(remote_node: RemoteNode) -> None:
    """Wait until a job runs."""

    async def something() -> bool:
        return bool(remote_node.running)

    await eventually(something)
