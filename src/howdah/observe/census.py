"""Census: ask the database how things stand, now and then, and keep the answer for the next scrape."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.service import every

T = TypeVar("T")

COUNT_EVERY = 10.0
SHARE = 20
"""Counting takes at most one part in so many of the time."""
STALE = 60.0
LOOK = 1.0
TIMEOUT = 30.0


class Census(ABC, Generic[T]):
    """Counts something in one database. Every node counts for itself, so the figures are the same on all."""

    name: str

    def __init__(
        self, database: Database, *, session: Session | None = None, wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._session = session or Session(database, self.name)
        self._own = session is None
        self._sql = sql.load("howdah.observe", schema=database.schema)
        self._wanted = wanted
        self._counted: tuple[float, T] | None = None
        self._due = 0.0
        self._keep = STALE

    @property
    def latest(self) -> T | None:
        """The last count; ``None`` when it is too old to be shown. Safe to call from any thread."""
        counted = self._counted
        if counted is None or time.monotonic() - counted[0] > self._keep:
            return None
        return counted[1]

    async def run(self, stop: asyncio.Event) -> None:
        """Count until ``stop``; outlives every outage."""
        try:
            await every(LOOK, self._count_when_due, name=self.name, stop=stop)
        finally:
            if self._own:
                await self._session.close()

    async def count(self) -> T:
        """Count now."""
        began = time.monotonic()
        found, failure = await self._ask()
        now = time.monotonic()
        pause = max(COUNT_EVERY, SHARE * (now - began))
        self._counted, self._due, self._keep = (now, found), now + pause, max(STALE, 3 * pause)
        if failure is not None:
            raise failure
        return found

    @abstractmethod
    async def _ask(self) -> tuple[T, Exception | None]:
        """What was found, and what went wrong beside it."""

    async def _count_when_due(self) -> None:
        if time.monotonic() >= self._due and self._wanted():
            await self.count()
