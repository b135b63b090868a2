"""Connection pool that replaces broken connections, and its watchdog.

All connections are dropped when the server turns read-only (after a failover). The watchdog finds connections whose
server will never reply. Statements of handlers have no timeout, so a timeout cannot tell a long statement from one that
was lost. TCP keepalive detects a dead peer, but not a proxy that keeps answering for it. ``pg_stat_activity`` can: a
client that waits for a reply while its backend is idle waits in vain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from types import TracebackType
from typing import Any, Protocol

import asyncpg
from asyncpg.pool import PoolAcquireContext

from howdah.errors import HowdahError

log = logging.getLogger("howdah.postgres")

CHECK_INTERVAL = 3.0
"""Seconds between two checks of the watchdog."""
LATE_AFTER = 2.0
"""Seconds after which a reply counts as late."""

# A standby, reached after a failover, does not list the backends of the primary.
FIND_IDLE = """
select pid, state_change
from unnest($1::int[]) pid left join pg_stat_activity using (pid)
where (datid is null or state like 'idle%') and not pg_is_in_recovery()
"""
# These backends have lost their client and may hold locks.
TERMINATE = """
select pg_terminate_backend(pid)
from unnest($1::int[], $2::timestamptz[]) dead(pid, state_change) join pg_stat_activity using (pid, state_change)
where state like 'idle%'
"""


class PendingReply:
    """Time since which a connection waits for a reply: during a block, or from :meth:`begin` to :meth:`end`."""

    __slots__ = ("pid", "since")

    def __init__(self) -> None:
        self.pid: int | None = None
        """The backend's pid; ``None`` behind a pooler, which hides it."""
        self.since: float | None = None

    def begin(self) -> None:
        """A statement is sent now."""
        self.since = time.monotonic()

    def end(self) -> None:
        """The reply arrived."""
        self.since = None

    async def __aenter__(self) -> None:
        self.begin()

    async def __aexit__(self, *_: object) -> None:
        self.end()


class WatchdogConnection(Protocol):
    """A second connection to the same server, opened when needed."""

    async def fetch(self, statement: str, *args: Any) -> list[Any]:
        """Run one statement and return its rows."""
        ...

    def drop(self) -> None:
        """Discard the connection."""
        ...


class Watchdog:
    """Checks acquired connections of a pool and terminates those that wait for a reply that will never come.

    Two checks must find the backend idle and in the same state while the same reply is late.
    """

    def __init__(self, connection: WatchdogConnection, on_dead: Callable[[], Awaitable[None]]) -> None:
        self._connection = connection
        self._on_dead = on_dead
        self._acquired: dict[Any, PendingReply] = {}
        self._seen: dict[int, Any] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, conn: Any) -> None:
        """Watch an acquired connection."""
        pending: PendingReply = conn.pending_reply
        if pending.pid is None:
            return
        pending.begin()
        self._acquired[conn] = pending
        if self._timer is None:
            self._wait()

    def remove(self, conn: Any) -> None:
        """Stop watching a connection that was released to the pool."""
        self._acquired.pop(conn, None)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer:
            self._timer.cancel()
        if self._task:
            self._task.cancel()
        self._connection.drop()

    def _wait(self) -> None:
        # in an empty context: the timer outlives the job that started it
        self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL, self._tick, context=Context())

    def _tick(self) -> None:
        if self._task is None or self._task.done():
            deadline = time.monotonic() - LATE_AFTER
            late = {
                pending.pid: (conn, since)
                for conn, pending in self._acquired.items()
                if pending.pid and (since := pending.since) and since < deadline
            }
            if late:
                self._task = asyncio.create_task(self._check(late), name="howdah watchdog")
            else:
                self._seen.clear()
                self._connection.drop()
        if self._acquired:
            self._wait()
        else:
            self._timer = None

    async def _check(self, late: dict[int, tuple[Any, float]]) -> None:
        try:
            found = {row["pid"]: row["state_change"] for row in await self._connection.fetch(FIND_IDLE, list(late))}
            idle = {pid: (changed, late[pid][1]) for pid, changed in found.items()}
            dead = {pid for pid, state in idle.items() if self._seen.get(pid) == state and self._still(*late[pid])}
            self._seen = idle
            if dead:
                await self._end(dead, found, late)
        except (HowdahError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            log.debug("could not check whether connections are alive: %s", error)

    async def _end(self, dead: set[int], found: dict[int, Any], late: dict[int, tuple[Any, float]]) -> None:
        log.warning("%d connections stopped responding and are replaced", len(dead))
        for pid in dead:
            conn, _ = late[pid]
            self.remove(conn)
            with suppress(asyncpg.InterfaceError):  # closed meanwhile, and taken back by its pool
                conn.terminate()
        await self._on_dead()
        await self._connection.fetch(TERMINATE, list(dead), [found[pid] for pid in dead])

    def _still(self, conn: Any, since: float) -> bool:
        """Return whether the connection still waits for the same reply."""
        pending = self._acquired.get(conn)
        return pending is not None and pending.since == since


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
        "reset": _no_reset,
        "loop": None,
        "connection_class": asyncpg.Connection,
        "record_class": asyncpg.Record,
    }
    pool: Pool = await Pool(dsn, **{**settings, **options})
    return pool


async def _no_reset(_conn: asyncpg.Connection) -> None:
    """Skip asyncpg's RESET, which costs a round trip: Howdah leaves no state on a session."""
