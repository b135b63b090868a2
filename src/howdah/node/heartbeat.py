"""Heartbeats: the thread that renews leases, and the check for an outage before expired leases are reset."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from howdah import telemetry
from howdah.loops import Outage, wait
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.worker.attempt import Attempt
from howdah.worker.capacity import OVERDUE
from howdah.worker.overdue import Overdue

log = logging.getLogger("howdah")


class NodeState(NamedTuple):
    """The state of a node that its heartbeat stores."""

    state: str
    running: int
    deaf: bool
    beside: int
    """Slots that no lease shows: of table rows, of the further slots of expensive jobs, of handlers that do not end."""


class LeaseHolder(Protocol):
    """A worker that holds leases. Its methods are called in the event loop, except ``tokens`` and ``overdue.pop``."""

    overdue: Overdue

    def tokens(self) -> list[int]: ...

    def renewed(self, tokens: Sequence[int], at: float) -> None: ...

    def lose(self, tokens: Sequence[int], reason: str) -> None: ...

    def lose_jobs(self, keys: Sequence[tuple[int, int | str]], reason: str) -> None: ...

    def cancel(self, ids: Sequence[int | str]) -> None: ...

    def stop_unrenewed(self) -> None: ...

    def stop(self, *, now: bool = False) -> None: ...

    @property
    def running(self) -> list[Attempt]: ...


BLOCKED = 3.0
"""Seconds after which a blocked event loop is logged, with the stack that blocks it."""

Renewal = Callable[[Any], Awaitable[Callable[[], None]]]
"""Renews the leases of one store in the heartbeat thread; returns a function that applies the result in the event loop.
Its argument is the connection of the thread. It may have a method ``release_overdue`` of the same type, which is called
first."""


class Connection(Protocol):
    """The connection of the heartbeat thread: to the database, or to the control plane."""

    async def close(self) -> None: ...


class HeartbeatThread:
    """Runs the renewals every ``heartbeat`` seconds and applies their results in the event loop that started it.

    It has its own connection, so that no handler can delay it. Renewals take turns on that connection. The first is the
    node's own, and never waits for all of the others.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        node: Callable[[], int],
        *,
        heartbeat: float,
        renewals: Sequence[Renewal],
        fail: Callable[[], None],
    ) -> None:
        self._connect = connect
        self.connection: Connection | None = None
        self._node = node
        self._heartbeat = heartbeat
        self._first, self._others = renewals[0], deque(renewals[1:])
        self._outages = {beat: Outage("heartbeat") for beat in renewals}
        self._on_failure = fail
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="howdah-heart", daemon=True)
        self._ponged = time.monotonic()
        self._pinged = 0.0
        self._logged = False
        self._hurried = False

    @property
    def loop_lag(self) -> float:
        """Seconds for which the event loop has been blocked, else 0."""
        return max(0.0, time.monotonic() - self._pinged) if self._pinged > self._ponged else 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def beating(self) -> bool:
        """True if its thread runs."""
        return self._thread.is_alive()

    def stop(self, *, timeout: float = 5.0) -> None:
        """Stop the thread; waits up to ``timeout`` seconds for the current renewal."""
        self._stop.set()
        self._soon.set()
        self._thread.join(timeout=timeout)

    async def end(self, seconds: float) -> None:
        """Stop the thread and wait for it at most ``seconds``; the event loop is not blocked meanwhile."""
        self.stop(timeout=0)
        if await wait(self._ended, seconds):
            self._thread.join()

    def beat_soon(self) -> None:
        """Run the renewals now instead of at the next interval."""
        self._soon.set()

    def _run(self) -> None:
        try:
            asyncio.run(self._renew_until_stopped())
        finally:
            self._call_in_loop(self._ended.set)

    async def _renew_until_stopped(self) -> None:
        self.connection = self._connect()
        due = time.monotonic()
        while not self._stop.is_set():
            lag = time.monotonic() - due
            self._soon.clear()
            pauses = await self._renew_all()
            if not any(outage.failures for outage in self._outages.values()):
                telemetry.emit("node.beat", node=self._node(), lag=lag)
            pause = min(self._heartbeat, *pauses)
            due = time.monotonic() + pause
            self._wait(pause)
        await self.connection.close()

    async def _renew_all(self) -> list[float]:
        """Run the first renewal, then at least one other, and more while there is time until the first is due again."""
        until = time.monotonic() + self._heartbeat
        pauses = [await self._renew(self._first)]
        for _ in range(len(self._others)):
            pauses.append(await self._renew(self._others[0]))
            self._others.rotate(-1)
            if time.monotonic() > until:
                return [0.0]
        return pauses

    async def _renew(self, beat: Renewal) -> float:
        """Run one renewal; returns the seconds until it is due again. A failure does not delay the others."""
        outage = self._outages[beat]
        try:
            if release := getattr(beat, "release_overdue", None):
                self._call_in_loop(await release(self.connection))
            self._call_in_loop(await beat(self.connection))
        except Exception as error:
            self._call_in_loop(self._on_failure)
            return outage.fail(error)
        outage.heal()
        return min(self._heartbeat, getattr(beat, "again", None) or self._heartbeat)  # some rows were locked

    def _wait(self, seconds: float) -> None:
        """Sleep in short intervals, and watch the event loop of the handlers."""
        until = time.monotonic() + seconds
        while not (self._stop.is_set() or self._soon.is_set()) and (left := until - time.monotonic()) > 0:
            self._watch()
            if self.loop_lag > OVERDUE and not self._hurried:
                self._hurried = True  # the renewals release the jobs that the blocked event loop keeps
                return
            self._soon.wait(min(left, 1.0))  # the event loop of this thread has no other tasks

    def _watch(self) -> None:
        if self._pinged <= self._ponged:
            self._pinged = time.monotonic()
            self._logged = self._hurried = False
            self._call_in_loop(self._pong)
        elif self.loop_lag > BLOCKED and not self._logged:
            self._logged = True
            frame = sys._current_frames().get(self._loop_thread)
            stack = "".join(traceback.format_stack(frame)[-6:]) if frame else "(no stack)"
            log.error("the event loop has been blocked for %.0f s, here:\n%s", self.loop_lag, stack)

    def _pong(self) -> None:
        self._ponged = time.monotonic()

    def _call_in_loop(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: the process exits
            self._stop.set()


SHORTEST_GAP = 2.0
"""Seconds without contact that count as an outage at least: shorter ones are those of a busy machine."""
SHORTEST_GRACE, LONGEST_GRACE = 4.0, 10.0
"""Seconds after an outage in which nodes renew their leases, and no lease is reset: longer than the longest pause
between two tries of a heartbeat."""


class Judged(NamedTuple):
    """Whose expired leases may be reset."""

    nodes: bool
    workers: bool
    """Nodes without a database."""
    until: float | None = None
    """The server's time until which this holds, in seconds since 1970. A reset that the server receives later was held
    back by an outage, in which leases expired that no node could renew."""


ALL = Judged(True, True)


def gap_of(lease: float) -> float:
    """Seconds without contact after which leases this long may have expired: they last at least two heartbeats.

    >>> gap_of(30.0), gap_of(2.0)
    (15.0, 2.0)
    """
    return max(SHORTEST_GAP, lease / 2)


def grace_of(lease: float) -> float:
    """Seconds that nodes with leases this long have after an outage.

    >>> grace_of(30.0), grace_of(2.0)
    (10.0, 4.0)
    """
    return min(LONGEST_GRACE, max(SHORTEST_GRACE, lease / 2))


class Contact:
    """Notes that this process reaches the server. ``remote``: it is a control plane."""

    def __init__(self, database: Database, session: Session, *, lease: float, remote: bool = False) -> None:
        self._session = session
        self._lease = lease
        self._remote = remote
        self._sql = sql.load("howdah.node", schema=database.schema)

    async def note(self) -> Judged:
        """Note it, and return whose expired leases may be reset now."""
        lease = self._lease
        row = await self._session.fetchrow(self._sql["note_contact"], self._remote, gap_of(lease), grace_of(lease))
        return Judged(row["nodes"], row["workers"], row["until"])
