"""Samples counts from the database periodically, and keeps the last result for the next scrape."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from howdah.loops import every
from howdah.postgres import sql
from howdah.postgres.database import Database, Session

T = TypeVar("T")

COUNT_EVERY = 10.0
"""Shortest pause between two counts, in seconds."""
PAUSE_FACTOR = 20
"""The pause after a count is at least this many times as long as the count took."""
STALE = 60.0
"""Seconds after which a count is no longer shown."""
CHECK_EVERY = 1.0
TIMEOUT = 30.0
"""Timeout of one statement, in seconds."""


class Sampler(ABC, Generic[T]):
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
        """Return the last count; ``None`` when it is too old to be shown. Safe to call from any thread."""
        counted = self._counted
        if counted is None or time.monotonic() - counted[0] > self._keep:
            return None
        return counted[1]

    async def run(self, stop: asyncio.Event) -> None:
        """Count until ``stop``; survives every outage."""
        try:
            await every(CHECK_EVERY, self._count_when_due, name=self.name, stop=stop)
        finally:
            if self._own:
                await self._session.close()

    async def count(self) -> T:
        """Count now."""
        began = time.monotonic()
        found, failure = await self._ask()
        now = time.monotonic()
        pause = max(COUNT_EVERY, PAUSE_FACTOR * (now - began))
        self._counted, self._due, self._keep = (now, found), now + pause, max(STALE, 3 * pause)
        if failure is not None:
            raise failure
        return found

    @abstractmethod
    async def _ask(self) -> tuple[T, Exception | None]:
        """Return the sample, and an error of a part of it."""

    async def _count_when_due(self) -> None:
        if time.monotonic() >= self._due and self._wanted():
            await self.count()


class ConsumerPosition(NamedTuple):
    """Position and state of one consumer."""

    name: str
    events: int
    """Positions its part furthest behind has not passed yet; holes, open appends and events out of its scope count."""
    seconds: float
    """Age of the oldest event one of its parts has not seen; 0: all is seen."""
    halted: bool
    paused: bool
    unassigned: bool
    """True if a part of it is at no live node."""
    parked: int


class LogPosition(NamedTuple):
    """Position and state of the log and all its consumers."""

    head: int
    frontier: int
    age: float
    """Seconds the oldest transaction with an open append has lasted; 0: there is none."""
    consumers: Sequence[ConsumerPosition]


class ConsumerLag(Sampler[LogPosition | None]):
    """Counts for all consumers of one database; ``None`` while it has none."""

    name = "lag"

    def __init__(
        self,
        database: Database,
        *,
        dead: float,
        session: Session | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(database, session=session, wanted=wanted)
        self._dead_after = dead
        """Seconds after which a silent node is dead."""

    async def _ask(self) -> tuple[LogPosition | None, Exception | None]:
        if not await self._session.fetchval(self._sql["consumed"], timeout=TIMEOUT):
            return None, None
        head, frontier, age = await self._session.fetchrow(self._sql["log"], timeout=TIMEOUT)
        rows = await self._session.fetch(self._sql["lag"], head, self._dead_after, timeout=TIMEOUT)
        return LogPosition(head, frontier, age, [ConsumerPosition(*row) for row in rows]), None


NODE_STATES = ("idle", "busy", "draining", "offline")


class Queue(NamedTuple):
    """Counts of one queue."""

    name: str
    queued: int
    scheduled: int
    running: int
    oldest: float | None
    """Seconds the oldest waiting job could have been running; ``None``: nothing waits."""


Counting = tuple[str, str, Sequence[Any]]
"""A statement that counts a table of the application: name, statement and values. It returns
one row, which begins with what is due, what waits but is not due yet, what is worked on, and the oldest."""


class QueueDepth(Sampler[list[Queue]]):
    """Counts the queues of one database, and the tables of its application."""

    name = "depth"

    def __init__(
        self,
        database: Database,
        *,
        session: Session | None = None,
        wanted: Callable[[], bool] = lambda: True,
        tables: Callable[[], Sequence[Counting]] = tuple,
    ) -> None:
        super().__init__(database, session=session, wanted=wanted)
        self._tables = tables
        self._nodes: dict[str, int] = {}

    @property
    def queues(self) -> list[Queue]:
        """The last count; empty when it is too old to be shown. Safe to call from any thread."""
        return self.latest or []

    @property
    def nodes(self) -> dict[str, int]:
        """The number of nodes by state, of the last count; empty when it is too old to be shown."""
        return self._nodes if self.latest is not None else {}

    async def _ask(self) -> tuple[list[Queue], Exception | None]:
        queues = [Queue(*row) for row in await self._session.fetch(self._sql["depth"], timeout=TIMEOUT)]
        counted = await self._session.fetch(self._sql["count_nodes"], timeout=TIMEOUT)
        self._nodes = dict.fromkeys(NODE_STATES, 0) | {row["state"]: row["nodes"] for row in counted}
        failure: Exception | None = None
        for name, statement, values in self._tables():
            try:
                row = await self._session.fetchrow(statement, *values, timeout=TIMEOUT)
                queues.append(Queue(name, *row[:4]))
            except Exception as error:  # a table that is locked or gone must not hide the others
                failure = failure or error
        return queues, failure
