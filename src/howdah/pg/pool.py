"""Pool: connections that are shared, none of them to a server that takes no more writes."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import asyncpg
from asyncpg.pool import PoolAcquireContext


class Pool(asyncpg.Pool):  # type: ignore[misc]
    """A pool that is emptied when one of its connections turns out to be to a demoted server: no other is of use."""

    def acquire(self, *, timeout: float | None = None) -> PoolAcquireContext:
        """A connection while the block lasts."""
        return _Acquire(self, timeout)


class _Acquire(PoolAcquireContext):  # type: ignore[misc]
    __slots__ = ()

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            await self.pool.expire_connections()


async def open_pool(dsn: str, **options: Any) -> Pool:
    """Open a pool; ``options`` are those of asyncpg's own."""
    settings: dict[str, Any] = {
        "max_queries": 50_000,
        "max_inactive_connection_lifetime": 300.0,
        "setup": None,
        "loop": None,
        "connection_class": asyncpg.Connection,
        "record_class": asyncpg.Record,
    }
    pool: Pool = await Pool(dsn, **{**settings, **options})
    return pool
