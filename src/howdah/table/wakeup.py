"""The wait of a table's worker for work."""

from __future__ import annotations

import asyncio
import heapq
import time

from howdah.loops import wait

MOST_EXPECTED = 10_000


class TableWakeup:
    """Wait that ends with a wake-up, when a known row falls due, or after the poll interval."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._rung = False
        self._news = asyncio.Event()
        self._due: list[float] = []

    def ring(self) -> None:
        """End the wait: there may be work."""
        self._rung = True
        self._news.set()

    def expect(self, seconds: float) -> None:
        """Note that a row falls due in a number of seconds."""
        if len(self._due) < MOST_EXPECTED:
            # A little later, since the server's clock may be behind.
            heapq.heappush(self._due, time.monotonic() + seconds + 0.002)
            self._news.set()

    async def rest(self) -> None:
        """Wait until another claim is worth it."""
        backstop = time.monotonic() + self._poll
        while not self._rung and (pause := self._until(backstop) - time.monotonic()) > 0:
            self._news.clear()
            await wait(self._news, pause)
        self._rung = False
        now = time.monotonic()
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)

    def _until(self, backstop: float) -> float:
        return min(backstop, self._due[0]) if self._due else backstop
