"""Connection pool that drops all its connections when the server turns read-only (after a failover)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

import asyncpg
from asyncpg.pool import PoolAcquireContext

from howdah.postgres.watchdog import PendingReply, Watchdog

END_IDLE = "select set_config('idle_in_transaction_session_timeout', $1, $2)"


class Pool(asyncpg.Pool):  # type: ignore[misc]
    """An asyncpg pool that expires every connection after the first one reports a read-only server."""

    watchdog: Watchdog | None = None
    """Finds dead connections among those without a statement timeout."""

    def terminate(self) -> None:
        """Close all connections without waiting."""
        self._stop_watchdog()
        super().terminate()

    async def close(self) -> None:
        """Close all connections once they are returned to the pool."""
        try:
            await super().close()
        finally:
            self._stop_watchdog()

    def _stop_watchdog(self) -> None:
        if self.watchdog:
            self.watchdog.stop()

    def acquire(self, *, timeout: float | None = None) -> PoolAcquireContext:
        """Return a connection for the duration of an ``async with`` block."""
        return _Acquire(self, timeout)


class _Acquire(PoolAcquireContext):  # type: ignore[misc]
    __slots__ = ()

    async def __aenter__(self) -> Any:
        conn = await super().__aenter__()
        if self.pool.watchdog:
            self.pool.watchdog.add(conn)
        return conn

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        conn = self.connection
        release = super().__aexit__(kind, error, trace)
        try:
            await (release if error is None else _release_after_error(conn, release))
        finally:
            if self.pool.watchdog:
                self.pool.watchdog.remove(conn)
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            await self.pool.expire_connections()


def is_closed(conn: Any) -> bool:
    """Return whether a pooled connection is closed."""
    try:
        return bool(conn.is_closed())
    except asyncpg.InterfaceError:  # the pool has already taken the closed connection back
        return True


async def _release_after_error(conn: Any, release: Coroutine[Any, Any, None]) -> None:
    """Return a connection to the pool after an error without waiting for a server that may be unreachable.

    A connection inside a transaction is terminated: asyncpg would send ROLLBACK and wait for the reply.
    """
    if not is_closed(conn) and conn.is_in_transaction():
        conn.terminate()
    releasing = asyncio.ensure_future(release)
    releasing.add_done_callback(_retrieve)
    await asyncio.shield(releasing)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark the error of the task as retrieved: its waiter may have been cancelled."""
    if not task.cancelled():
        task.exception()


class DirectConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection without a pooler in between: session settings persist."""

    __slots__ = ("_idle", "pending_reply")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle: float | None = None
        self.pending_reply = PendingReply()

    async def end_idle_after(self, seconds: float) -> None:
        """Set ``idle_in_transaction_session_timeout``; a repeated value costs no round trip."""
        if self._idle != seconds:
            await self.execute(END_IDLE, str(int(seconds * 1000)), False)
            self._idle = seconds


async def open_pool(dsn: str, **options: Any) -> Pool:
    """Open a pool; ``options`` are passed to asyncpg."""
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
