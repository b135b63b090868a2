"""Pause: how the worker of a table waits for work."""

from __future__ import annotations

import asyncio
import heapq
import time

from howdah.service import wait

MOST_EXPECTED = 10_000


class Pause:
    """Ends when somebody rings, when a row known to be due falls due, or when the poll interval is over."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._rung = False
        self._news = asyncio.Event()
        self._due: list[float] = []

    def ring(self) -> None:
        """There may be work."""
        self._rung = True
        self._news.set()

    def expect(self, seconds: float) -> None:
        """A row falls due in so many seconds."""
        if len(self._due) < MOST_EXPECTED:
            # a little later, or the server's clock has not got there
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
