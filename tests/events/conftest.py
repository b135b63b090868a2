"""What the tests of the log share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from howdah.postgres.database import Database
from kit.frontier import Connect, Watch, connections_to


@pytest.fixture
async def connect(direct: Database) -> AsyncIterator[Connect]:
    """Opens connections as an application has them: nothing of ours is set on them."""
    async with connections_to(direct.dsn) as connect:
        yield connect


@pytest.fixture
async def written(conn: Any) -> Callable[..., Awaitable[list[tuple[Any, ...]]]]:
    """Tells what is in the log: ``await written("version, type")``, by position."""

    async def written(columns: str = "stream_type || '-' || stream_id, version, type") -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await conn.fetch(f"select {columns} from howdah.event order by position")]

    return written


@pytest.fixture
async def watch(connect: Connect) -> Watch:
    """Somebody who reads the frontier."""
    return Watch(await connect())


@pytest.fixture
async def a(connect: Connect) -> Any:
    """A connection that appends."""
    return await connect()


@pytest.fixture
async def b(connect: Connect) -> Any:
    """Another one."""
    return await connect()
