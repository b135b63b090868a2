"""Watchdog for connections without a statement timeout: finds those whose server will never reply.

Statements of handlers have no timeout, so a timeout cannot tell a long statement from one that was lost. TCP keepalive
detects a dead peer, but not a proxy that keeps answering for it. ``pg_stat_activity`` can: a client that waits for a
reply while its backend is idle waits in vain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol

import asyncpg

from howdah.errors import HowdahError

log = logging.getLogger("howdah.postgres")

CHECK_INTERVAL = 3.0
"""Seconds between two checks."""
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
