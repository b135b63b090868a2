"""Heart: renews leases from a thread of its own, so that no handler can starve it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from howdah import telemetry
from howdah.pg.database import Database, Session
from howdah.service import Outage

log = logging.getLogger("howdah")

BLOCKED = 3.0
"""Seconds after which a blocked event loop is reported, with the stack that blocks it."""

Beat = Callable[[Any], Awaitable[Callable[[], None]]]
"""Renews what one store holds, in the heart's thread; answers with what the event loop is to do about it.
It is given the heart's own connection, if the node has a database."""


class Heart:
    """Beats every ``heartbeat`` seconds. What a beat learns is handed to the event loop that started it.

    Beats take turns on one connection. The first of them is the node's own, and never waits for all of the others.
    """

    def __init__(
        self,
        database: Database | None,
        node: int,
        *,
        heartbeat: float,
        beats: Sequence[Beat],
        fail: Callable[[], None],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._session = Session(database, "heartbeat") if database else None
        self.node = node
        self._close = close
        self._heartbeat = heartbeat
        self._first, self._others = beats[0], deque(beats[1:])
        self._outages = {beat: Outage("heartbeat") for beat in beats}
        self._fail = fail
        self._home = asyncio.get_running_loop()
        self._home_thread = threading.get_ident()
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name="howdah-heart", daemon=True)
        self._answered = time.monotonic()
        self._asked = 0.0
        self._told = False

    @property
    def loop_lag(self) -> float:
        """Seconds the event loop has not answered, 0 when it does."""
        return max(0.0, time.monotonic() - self._asked) if self._asked > self._answered else 0.0

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    @property
    def beating(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def stop(self, *, patience: float = 5.0) -> None:
        """Beat no more; waits so long for the beat at hand."""
        self._stop.set()
        self._soon.set()
        self._thread.join(timeout=patience)

    def beat_soon(self) -> None:
        """Beat now rather than at the next turn."""
        self._soon.set()

    def _run(self) -> None:
        asyncio.run(self._beat_until_stopped())

    async def _beat_until_stopped(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            lag = time.monotonic() - due
            self._soon.clear()
            pauses = await self._turn()
            if not any(outage.failures for outage in self._outages.values()):
                telemetry.emit("node.beat", node=self.node, lag=lag)
            pause = min(self._heartbeat, *pauses)
            due = time.monotonic() + pause
            self._wait(pause)
        if self._session:
            await self._session.close()
        if self._close:
            await self._close()

    async def _turn(self) -> list[float]:
        """The first beat, and of the others as many as there is time for until it must come again, at least one."""
        until = time.monotonic() + self._heartbeat
        pauses = [await self._try(self._first)]
        for _ in range(len(self._others)):
            pauses.append(await self._try(self._others[0]))
            self._others.rotate(-1)
            if time.monotonic() > until:
                return [0.0]
        return pauses

    async def _try(self, beat: Beat) -> float:
        """One beat; returns how soon the next must come. One that fails does not hold up the others."""
        outage = self._outages[beat]
        try:
            self._tell(await beat(self._session))
        except Exception as error:
            self._tell(self._fail)
            return outage.fail(error)
        outage.heal()
        return min(self._heartbeat, getattr(beat, "again", None) or self._heartbeat)  # some rows were locked

    def _wait(self, seconds: float) -> None:
        """Sleep in short naps, and watch the event loop the handlers share."""
        until = time.monotonic() + seconds
        while not (self._stop.is_set() or self._soon.is_set()) and (left := until - time.monotonic()) > 0:
            self._watch()
            self._soon.wait(min(left, 1.0))  # this thread's own loop has nothing else to do

    def _watch(self) -> None:
        if self._asked <= self._answered:
            self._asked = time.monotonic()
            self._told = False
            self._tell(self._answer)
        elif self.loop_lag > BLOCKED and not self._told:
            self._told = True
            frame = sys._current_frames().get(self._home_thread)
            stack = "".join(traceback.format_stack(frame)[-6:]) if frame else "(no stack)"
            log.error("the event loop has been blocked for %.0f s, here:\n%s", self.loop_lag, stack)

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._home.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: the process is ending
            self._stop.set()
