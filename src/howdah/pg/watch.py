"""Watch: whether the server still works on what it was asked.

Statements of handlers may take as long as they like, so no time limit tells a long one from one that never arrived.
TCP notices a peer that is gone, but not a proxy that goes on answering for it. The server knows: who waits while its
backend is idle waits for nothing.
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

log = logging.getLogger("howdah.pg")

EVERY = 3.0
"""Seconds between two looks."""
LONG = 2.0
"""Seconds after which an answer is missed."""

# A standby, where somebody was led by mistake, knows nothing of them.
LOOK = """
select pid, state_change
from unnest($1::int[]) pid left join pg_stat_activity using (pid)
where (datid is null or state like 'idle%') and not pg_is_in_recovery()
"""
# Nobody speaks with these any more, and they may hold locks.
END = """
select pg_terminate_backend(pid)
from unnest($1::int[], $2::timestamptz[]) dead(pid, state_change) join pg_stat_activity using (pid, state_change)
where state like 'idle%'
"""


class Asking:
    """Since when a connection waits for an answer: while a block lasts, or from :meth:`begin` to :meth:`end`."""

    __slots__ = ("pid", "since")

    def __init__(self) -> None:
        self.pid: int | None = None
        """Of the backend at the other end; ``None`` if somebody in between hides it."""
        self.since: float | None = None

    def begin(self) -> None:
        """Something is asked now, or will be at once."""
        self.since = time.monotonic()

    def end(self) -> None:
        """It is answered."""
        self.since = None

    async def __aenter__(self) -> None:
        self.begin()

    async def __aexit__(self, *_: object) -> None:
        self.end()


class Witness(Protocol):
    """Another connection to the same server, opened when it is needed."""

    async def fetch(self, statement: str, *args: Any) -> list[Any]:
        """Run one statement and return its rows."""
        ...

    def drop(self) -> None:
        """Throw the connection away."""
        ...


class Watch:
    """Looks after the connections that a pool has lent; ends those of which nothing will come any more.

    Two looks have to find a backend idle, in the same state, while the same answer is missed.
    """

    def __init__(self, witness: Witness, on_dead: Callable[[], Awaitable[None]]) -> None:
        self._witness = witness
        self._on_dead = on_dead
        self._lent: dict[Any, Asking] = {}
        self._seen: dict[int, Any] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None

    def add(self, conn: Any) -> None:
        """It was lent, and is about to be asked something."""
        asking: Asking = conn.asking
        if asking.pid is None:
            return
        asking.begin()
        self._lent[conn] = asking
        if self._timer is None:
            self._wait()

    def remove(self, conn: Any) -> None:
        """It was given back."""
        self._lent.pop(conn, None)

    def stop(self) -> None:
        """Look no more."""
        if self._timer:
            self._timer.cancel()
        if self._look:
            self._look.cancel()
        self._witness.drop()

    def _wait(self) -> None:
        # in a context of its own: that of the job at hand has nothing to do with it
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._tick, context=Context())

    def _tick(self) -> None:
        if self._look is None or self._look.done():
            late = time.monotonic() - LONG
            missed = {
                asking.pid: (conn, since)
                for conn, asking in self._lent.items()
                if asking.pid and (since := asking.since) and since < late
            }
            if missed:
                self._look = asyncio.create_task(self._look_at(missed), name="howdah watch")
            else:
                self._seen.clear()
                self._witness.drop()
        if self._lent:
            self._wait()
        else:
            self._timer = None

    async def _look_at(self, missed: dict[int, tuple[Any, float]]) -> None:
        try:
            found = {row["pid"]: row["state_change"] for row in await self._witness.fetch(LOOK, list(missed))}
            idle = {pid: (changed, missed[pid][1]) for pid, changed in found.items()}
            dead = {pid for pid, state in idle.items() if self._seen.get(pid) == state and self._still(*missed[pid])}
            self._seen = idle
            if dead:
                await self._end(dead, found, missed)
        except (HowdahError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            log.debug("could not look whether connections are alive: %s", error)

    async def _end(self, dead: set[int], found: dict[int, Any], missed: dict[int, tuple[Any, float]]) -> None:
        log.warning("%d connections have stopped answering; they are replaced", len(dead))
        for pid in dead:
            conn, _ = missed[pid]
            self.remove(conn)
            with suppress(asyncpg.InterfaceError):  # it was closed, and its pool has taken it back
                conn.terminate()
        await self._on_dead()
        await self._witness.fetch(END, list(dead), [found[pid] for pid in dead])

    def _still(self, conn: Any, since: float) -> bool:
        """Whether the same answer is missed as before."""
        asking = self._lent.get(conn)
        return asking is not None and asking.since == since
