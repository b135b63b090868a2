"""Pool: connections that are shared, none of them to a server that takes no more writes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

import asyncpg
from asyncpg.pool import PoolAcquireContext

from howdah.pg.watch import Asking, Watch

END_IDLE = "select set_config('idle_in_transaction_session_timeout', $1, $2)"


class Pool(asyncpg.Pool):  # type: ignore[misc]
    """A pool that is emptied when one of its connections turns out to be to a demoted server: no other is of use."""

    watch: Watch | None = None
    """Who looks after connections that have no time limit."""

    def terminate(self) -> None:
        """End all connections now."""
        self._stop_watch()
        super().terminate()

    async def close(self) -> None:
        """Close all connections, once they are given back."""
        try:
            await super().close()
        finally:
            self._stop_watch()

    def _stop_watch(self) -> None:
        if self.watch:
            self.watch.stop()

    def acquire(self, *, timeout: float | None = None) -> PoolAcquireContext:
        """A connection while the block lasts."""
        return _Acquire(self, timeout)


class _Acquire(PoolAcquireContext):  # type: ignore[misc]
    __slots__ = ()

    async def __aenter__(self) -> Any:
        conn = await super().__aenter__()
        if self.pool.watch:
            self.pool.watch.add(conn)
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
            if self.pool.watch:
                self.pool.watch.remove(conn)
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            await self.pool.expire_connections()


def is_closed(conn: Any) -> bool:
    """Whether a connection of a pool is closed."""
    try:
        return bool(conn.is_closed())
    except asyncpg.InterfaceError:  # the pool took a connection back that was closed under us
        return True


async def _release_after_error(conn: Any, release: Coroutine[Any, Any, None]) -> None:
    """Give a connection back after an error, and do not wait for a server that may be gone.

    What is left of a transaction ends with its connection: asyncpg would roll back, and wait for an answer.
    """
    if not is_closed(conn) and conn.is_in_transaction():
        conn.terminate()
    releasing = asyncio.ensure_future(release)
    releasing.add_done_callback(_retrieve)
    await asyncio.shield(releasing)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Whoever waited for the task may have been cancelled; its error is then of no use to anyone."""
    if not task.cancelled():
        task.exception()


class Direct(asyncpg.Connection):  # type: ignore[misc]
    """A connection straight to the server, whose session is ours: what is set on it stays set."""

    __slots__ = ("_idle", "asking")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle: float | None = None
        self.asking = Asking()

    async def end_idle_after(self, seconds: float) -> None:
        """Let the server end a transaction in which nothing was done for so long; costs nothing when said again."""
        if self._idle != seconds:
            await self.execute(END_IDLE, str(int(seconds * 1000)), False)
            self._idle = seconds


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
