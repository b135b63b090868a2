"""The heartbeat thread: renews leases with its own connection, so that no handler can delay it."""

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
from howdah.loops import Outage
from howdah.node.registry import Registration
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.worker.attempt import Attempt

log = logging.getLogger("howdah")


class NodeState(NamedTuple):
    """The state of a node that its heartbeat stores."""

    state: str
    running: int
    deaf: bool
    beside: int
    """Slots that no lease shows: of table rows, of the further slots of expensive jobs, of handlers that do not end."""


class LeaseHolder(Protocol):
    """A worker that holds leases. Its methods are called in the event loop, except ``tokens``."""

    def tokens(self) -> list[int]: ...

    def renewed(self, tokens: Sequence[int], at: float) -> None: ...

    def lose(self, tokens: Sequence[int], reason: str) -> None: ...

    def lose_jobs(self, keys: Sequence[tuple[int, int | str]], reason: str) -> None: ...

    def cancel(self, ids: Sequence[int | str]) -> None: ...

    def stop(self, *, now: bool = False) -> None: ...

    @property
    def running(self) -> list[Attempt]: ...


class NodeRenewal:
    """Renews the job leases of one holder and stores the state of the node, in one statement."""

    def __init__(
        self,
        database: Database,
        registration: Registration,
        *,
        lease: float,
        holder: LeaseHolder,
        state: Callable[[], NodeState],
        drain: Callable[[], None],
    ) -> None:
        self._registration = registration
        self._lease = lease
        self._holder = holder
        self._state = state
        self._drain = drain
        self.statement = sql.load("howdah.node", schema=database.schema)["heartbeat"]

    async def __call__(self, session: Session) -> Callable[[], None]:
        state, tokens, at = self._state(), self._holder.tokens(), time.monotonic()
        # a reply that takes more than a third of a lease comes too late to be of use
        limit = max(1.0, self._lease / 3)
        node = self._registration.node
        row = await session.fetchrow(self.statement, node, tokens, self._lease, *state, timeout=limit)
        lost, wanted = list(row["lost"]), list(row["cancel"])
        if not row["registered"]:  # pruned while this process was frozen, or lost in a failover
            await self._registration.insert_again(session)
            log.warning("the row of node %d was missing; registered again", node)

        def apply() -> None:
            self._holder.renewed([token for token in tokens if token not in lost], at)
            if lost:
                self._holder.lose(lost, "the lease expired and was reset")
            if wanted:
                self._holder.cancel(wanted)
            if row["leaving"]:
                self._drain()

        return apply


BLOCKED = 3.0
"""Seconds after which a blocked event loop is logged, with the stack that blocks it."""

Renewal = Callable[[Any], Awaitable[Callable[[], None]]]
"""Renews the leases of one store in the heartbeat thread; returns a function that applies the result in the event loop.
Its argument is the connection of the thread, if the node has a database."""


class HeartbeatThread:
    """Runs the renewals every ``heartbeat`` seconds and applies their results in the event loop that started it.

    Renewals take turns on one connection. The first is the node's own, and never waits for all of the others.
    """

    def __init__(
        self,
        database: Database | None,
        node: int,
        *,
        heartbeat: float,
        renewals: Sequence[Renewal],
        fail: Callable[[], None],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._session = Session(database, "heartbeat") if database else None
        self.node = node
        self._close = close
        self._heartbeat = heartbeat
        self._first, self._others = renewals[0], deque(renewals[1:])
        self._outages = {beat: Outage("heartbeat") for beat in renewals}
        self._on_failure = fail
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name="howdah-heart", daemon=True)
        self._ponged = time.monotonic()
        self._pinged = 0.0
        self._logged = False

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

    def beat_soon(self) -> None:
        """Run the renewals now instead of at the next interval."""
        self._soon.set()

    def _run(self) -> None:
        asyncio.run(self._renew_until_stopped())

    async def _renew_until_stopped(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            lag = time.monotonic() - due
            self._soon.clear()
            pauses = await self._renew_all()
            if not any(outage.failures for outage in self._outages.values()):
                telemetry.emit("node.beat", node=self.node, lag=lag)
            pause = min(self._heartbeat, *pauses)
            due = time.monotonic() + pause
            self._wait(pause)
        if self._session:
            await self._session.close()
        if self._close:
            await self._close()

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
            self._call_in_loop(await beat(self._session))
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
            self._soon.wait(min(left, 1.0))  # the event loop of this thread has no other tasks

    def _watch(self) -> None:
        if self._pinged <= self._ponged:
            self._pinged = time.monotonic()
            self._logged = False
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
