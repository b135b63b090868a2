"""Depth: how much waits in every queue, counted now and then and kept for the next scrape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.service import every

COUNT_EVERY = 10.0
SHARE = 20
"""Counting takes at most one part in so many of the time."""
STALE = 60.0
LOOK = 1.0
TIMEOUT = 30.0


class Queue(NamedTuple):
    """What one queue holds."""

    name: str
    queued: int
    scheduled: int
    running: int
    oldest: float | None
    """Seconds the oldest waiting job could have been running; ``None``: nothing waits."""


Counting = tuple[str, str, Sequence[Any]]
"""How a table of the application's is counted: its name, the statement and its values. The statement answers with
one row, which begins with what is due, what waits but is not due yet, what is worked on, and the oldest."""


class Depth:
    """Counts the queues of one database. Every node counts for itself, so the figures are the same on all."""

    def __init__(
        self,
        database: Database,
        *,
        wanted: Callable[[], bool] = lambda: True,
        tables: Callable[[], Sequence[Counting]] = tuple,
    ) -> None:
        self._session = Session(database, "depth")
        self._sql = sql.load("howdah.observe", schema=database.schema)["depth"]
        self._wanted = wanted
        self._tables = tables
        self._counted: tuple[float, list[Queue]] | None = None
        self._due = 0.0
        self._keep = STALE

    @property
    def queues(self) -> list[Queue]:
        """The last count; empty when it is too old to be shown. Safe to call from any thread."""
        if self._counted is None or time.monotonic() - self._counted[0] > self._keep:
            return []
        return self._counted[1]

    async def run(self, stop: asyncio.Event) -> None:
        """Count until ``stop``; outlives every outage."""
        try:
            await every(LOOK, self._count_when_due, name="depth", stop=stop)
        finally:
            await self._session.close()

    async def count(self) -> list[Queue]:
        """Count now."""
        began = time.monotonic()
        queues = [Queue(*row) for row in await self._session.fetch(self._sql, timeout=TIMEOUT)]
        failures: list[Exception] = []
        for name, statement, values in self._tables():
            try:
                row = await self._session.fetchrow(statement, *values, timeout=TIMEOUT)
                queues.append(Queue(name, *row[:4]))
            except Exception as error:  # a table that is locked or gone must not hide the others
                failures.append(error)
        now = time.monotonic()
        pause = max(COUNT_EVERY, SHARE * (now - began))
        self._counted, self._due, self._keep = (now, queues), now + pause, max(STALE, 3 * pause)
        if failures:
            raise failures[0]
        return queues

    async def _count_when_due(self) -> None:
        if time.monotonic() >= self._due and self._wanted():
            await self.count()
