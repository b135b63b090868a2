"""Dispatcher: looks at the frontier for all consumers of a node, and wakes them when it moves.

Hanging the sign and then seeing no append open, it may sleep: whoever appends later sees the sign and rings. While an
append is open it looks again in short steps, since that one may have come before the sign. While events flow it hangs
no sign, so busy writers do not notify.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from howdah.log.read import UNSEEN, Look
from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.service import Outage, wait_any

SIGN = 2000
"""Milliseconds the sign lasts; it is renewed by every look that precedes a sleep."""
RECONCILE = 1.0
FLOWING = 0.02
"""Seconds between looks while events flow."""
RAMP = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
"""Seconds between looks while an append is open."""


class Dispatcher:
    """One look for all: consumers wait here until there is something beyond their position."""

    def __init__(self, database: Database, *, interval: float, hears: Callable[[], bool]) -> None:
        self._session = Session(database, "frontier")
        self._sql = sql.load("howdah.log", schema=database.schema)["look"]
        self._interval = interval
        self._hears = hears
        self._rung = asyncio.Event()
        self._news = asyncio.Event()
        self._held = 0
        self._moved_at = time.monotonic()
        self.frontier = UNSEEN
        """As it was seen last, in the run of the server that it names."""
        self.looks = 0

    def ring(self) -> None:
        """Somebody appended, or may have."""
        self._rung.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look until ``stop``; outlives every outage."""
        outage = Outage("frontier")
        while not stop.is_set():
            self._rung.clear()
            try:
                pause = await self._look_and_rest()
            except Exception as error:
                pause = outage.fail(error)
            else:
                outage.heal()
            await wait_any(pause, self._rung, stop)
        await self._session.close()

    async def wait(self, beyond: int, seconds: float, *others: asyncio.Event) -> bool:
        """Wait until the log can be read beyond a position, at most ``seconds``; returns whether it can.

        ``others`` end the wait as well.
        """
        news = self._news  # taken before the comparison: what moves from here on is not missed
        if self.frontier.safe <= beyond:
            await wait_any(seconds, news, *others)
        return self.frontier.safe > beyond

    async def look(self, sign: int = 0) -> bool:
        """Look once; returns whether the frontier moved, or the server is another one or was restarted."""
        before = self.frontier
        self.frontier = Look(*await self._session.fetchrow(self._sql, sign))
        self.looks += 1
        if (self.frontier.safe, self.frontier.run) == (before.safe, before.run):
            return False
        self._held, self._moved_at = 0, time.monotonic()
        self._news.set()
        self._news = asyncio.Event()
        return True

    def drop(self) -> None:
        """Throw the connection away, and with it what it showed."""
        self._session.drop()
        self.frontier = UNSEEN

    async def _look_and_rest(self) -> float:
        """Look, and say how long the next look can wait."""
        if await self.look():
            return FLOWING
        hears = self._hears()
        if time.monotonic() - self._moved_at < FLOWING:
            rest = FLOWING  # looks in quick succession find nothing while events flow, and must not hang the sign
        elif hears and await self.look(SIGN):
            return FLOWING
        else:
            rest = RECONCILE if hears else self._interval
        if not self.frontier.held:
            self._held = 0
            return rest
        self._held += 1
        return min(rest, RAMP[min(self._held, len(RAMP)) - 1])
