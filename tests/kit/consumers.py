"""Consumers inside a test: what they saw, and which node has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from howdah import Event, Howdah, Transaction
from howdah.node.node import Node
from kit.node import consumers_of, quick

Handler = Callable[[str, Event, Transaction], Awaitable[None]]


def following(
    dsn: str, *names: str, schema: str = "howdah", handler: Handler | None = None, **settings: Any
) -> tuple[Howdah, list[tuple[str, int]]]:
    """An app with consumers of these names, and the list of what they saw: name and position, in order."""
    app, seen = Howdah(dsn, schema=schema), list[tuple[str, int]]()

    def add(name: str) -> None:
        @app.consumer(name, **settings)
        async def handle(event: Event, tx: Transaction) -> None:
            if handler:
                await handler(name, event, tx)
            seen.append((name, event.position))

    for name in names:
        add(name)
    return app, seen


async def owners(conn: Any, schema: str = "howdah") -> dict[tuple[str, int], int | None]:
    """Which node has which partition."""
    rows = await conn.fetch(f"select consumer, part, node from {schema}.consumer_partition order by 1, 2")
    return {(row["consumer"], row["part"]): row["node"] for row in rows}


def held(conn: Any, *nodes: Node[Any], schema: str = "howdah") -> Callable[[], Awaitable[bool]]:
    """Whether every partition has an owner, and these nodes are the owners."""

    async def check() -> bool:
        found = set((await owners(conn, schema)).values())
        return found == {each.node for each in nodes} and 0 not in found

    return check


async def registered(conn: Any, nodes: int) -> bool:
    """Whether so many nodes have said what they can consume."""
    return bool(await conn.fetchval("select count(*) = $1 from howdah.node where consumers is not null", nodes))


@asynccontextmanager
async def mortal(app: Howdah, **options: Any) -> AsyncIterator[Any]:
    """A node with a method ``kill``: its tasks are cancelled, and nothing says goodbye."""
    running_node: Any = app.node(quick(**options), upkeep=False)
    running = asyncio.create_task(running_node.run())

    async def nothing(*_: object) -> None: ...

    async def kill() -> None:
        running_node.registry.deregister = consumers_of(running_node)._resign = nothing
        running_node.heartbeat_thread.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    running_node.kill = kill
    try:
        yield running_node
    finally:
        running_node.stop()
        await asyncio.gather(asyncio.wait_for(running, 60), return_exceptions=True)
