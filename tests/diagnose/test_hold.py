"""Kinds that are left alone for a while: closed for every node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from howdah import Howdah
from howdah.control_plane.job_queue import RemoteJobQueue
from howdah.postgres.database import Database

pytestmark = pytest.mark.anyio

WORKER = (
    "insert into howdah.node (name, kinds, slots, remote) values ('far:7', '{send}', 5, true)"
    " on conflict do nothing returning id"
)


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[RemoteJobQueue]:
    """What a control plane claims through."""
    pool = await database.pool(2)
    queue = RemoteJobQueue(database, pool, lease=30, poll=1, notify=False)
    yield queue
    await queue.close()
    pool.terminate()


@pytest.fixture
async def send(app: Howdah) -> Any:
    @app.task
    async def send() -> None: ...

    return send


async def test_a_held_kind_is_said_until_when_and_why(
    queue: RemoteJobQueue, send: Any, ask: Any, closed: Any, conn: Any
) -> None:
    node = await conn.fetchval(WORKER)
    made = await send.enqueue()
    await queue.hold("send", 7200, "429 Too\nMany Requests")

    gates = await ask(made.id)
    assert await closed(made.id) == ["hold"]
    assert gates["hold"].fact.startswith("no node claims jobs of kind 'send' until 20")
    assert gates["hold"].fact.endswith("(in 2 h): 429 Too Many Requests")
    assert await queue.claim(node, (["send"], None, []), limit=1, room={}, timeout=0) == []

    await conn.execute("update howdah.hold set until = now()")
    await queue.refresh()
    assert await closed(made.id) == []
    assert [job.id for job in await queue.claim(node, (["send"], None, []), limit=1, room={}, timeout=0)] == [made.id]


async def test_a_node_with_a_database_leaves_it_alone_too(
    queue: RemoteJobQueue, send: Any, closed: Any, conn: Any
) -> None:
    made = await send.enqueue()
    await conn.execute("insert into howdah.node (name, kinds, slots) values ('web:7', '{send}', 5)")
    await queue.hold("send", 60, "429")

    assert await closed(made.id) == ["hold"]
