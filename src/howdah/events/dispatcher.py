"""Polls the frontier for all consumers of a node and wakes them when it moves.

Before it sleeps it requests a wake-up and then checks that no append is open: every later append sees the request and
notifies. While an append is open it polls in short steps, since that append may have begun before the request. While
events flow it requests no wake-up, so busy writers do not notify.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from howdah.events.read import UNSEEN, LogView
from howdah.loops import Outage, wait_any
from howdah.postgres import sql
from howdah.postgres.database import Database, Session

REQUEST_TTL = 2000
"""Milliseconds a wake-up request lasts; every poll before a sleep renews it."""
RECONCILE = 1.0
"""Seconds between polls while wake-ups arrive."""
FLOWING = 0.02
"""Seconds between polls while events flow."""
RAMP = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
"""Seconds between polls while an append is open."""


class Dispatcher:
    """One poll for all consumers: they wait here until the frontier is beyond their position."""

    def __init__(self, database: Database, *, interval: float, listening: Callable[[], bool]) -> None:
        self._session = Session(database, "frontier")
        self._sql = sql.load("howdah.events", schema=database.schema)["poll_frontier"]
        self._interval = interval
        self._listening = listening
        self._woken = asyncio.Event()
        self._moved = asyncio.Event()
        self._held = 0
        self._moved_at = time.monotonic()
        self.frontier = UNSEEN
        """The frontier of the last poll, with the run of the server it was read in."""
        self.polls = 0

    def wake(self) -> None:
        """Poll now: a transaction appended, or may have."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until ``stop``; survives every outage."""
        outage = Outage("frontier")
        while not stop.is_set():
            self._woken.clear()
            try:
                pause = await self._poll_once()
            except Exception as error:
                pause = outage.fail(error)
            else:
                outage.heal()
            await wait_any(pause, self._woken, stop)
        await self._session.close()

    async def wait(self, beyond: int, seconds: float, *others: asyncio.Event) -> bool:
        """Wait at most ``seconds`` until the log can be read beyond a position; return whether it can.

        ``others`` end the wait as well.
        """
        moved = self._moved  # Taken before the comparison, so that a frontier that moves meanwhile is not missed.
        if self.frontier.safe <= beyond:
            await wait_any(seconds, moved, *others)
        return self.frontier.safe > beyond

    async def poll(self, request: int = 0) -> bool:
        """Poll once; return whether the frontier moved, or the server was replaced or restarted.

        ``request``: milliseconds to request wake-ups for.
        """
        before = self.frontier
        self.frontier = LogView(*await self._session.fetchrow(self._sql, request))
        self.polls += 1
        if (self.frontier.safe, self.frontier.run) == (before.safe, before.run):
            return False
        self._held, self._moved_at = 0, time.monotonic()
        self._moved.set()
        self._moved = asyncio.Event()
        return True

    def drop(self) -> None:
        """Discard the connection and the frontier read on it."""
        self._session.drop()
        self.frontier = UNSEEN

    async def _poll_once(self) -> float:
        """Poll, and return the seconds until the next poll."""
        if await self.poll():
            return FLOWING
        listening = self._listening()
        if time.monotonic() - self._moved_at < FLOWING:
            rest = FLOWING  # Quick polls find nothing even while events flow, and must not request a wake-up.
        elif listening and await self.poll(REQUEST_TTL):
            return FLOWING
        else:
            rest = RECONCILE if listening else self._interval
        if not self.frontier.held:
            self._held = 0
            return rest
        self._held += 1
        return min(rest, RAMP[min(self._held, len(RAMP)) - 1])


class PollInterval:
    """Adaptive poll interval of one consumer: short while events flow; doubles up to ``max_poll`` while none arrive.

    >>> pace = PollInterval(poll=1, max_poll=5, pause=0.2)
    >>> [pace.nothing(), pace.nothing(), pace.nothing(), pace.nothing(), pace.some(full=False), pace.some(full=True)]
    [1, 2, 4, 5, 1, 0.2]
    """

    def __init__(self, poll: float, max_poll: float, pause: float) -> None:
        self._poll = poll
        self._most = max(poll, max_poll)
        self._pause = pause
        self._next = poll

    def some(self, *, full: bool) -> float:
        """Events were found; ``full``: as many as fit, so there may be more."""
        self._next = self._poll
        return self._pause if full else self._poll

    def nothing(self) -> float:
        """No event was found."""
        now, self._next = self._next, min(self._most, self._next * 2)
        return now

    def woken(self) -> None:
        """A wake-up arrived."""
        self._next = self._poll
