"""Reads events by stream, by position or ahead for a consumer, never beyond the safe frontier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import asyncpg

from howdah.errors import EventError
from howdah.events.consumer import Consumer
from howdah.events.event import Decoder, Event, events_of, split_stream
from howdah.events.partition import Partition
from howdah.postgres import sql
from howdah.postgres.database import Acquired, Database

LARGEST_PAGE = 10_000
END = 2**63 - 1
RESTARTED = "HD412"
"""The SQLSTATE of a read in another run of the server than that of its frontier."""
TRIES = 5
"""Number of times a page is read again because the server was restarted between two statements."""
PAUSE = 0.05
"""Seconds between these attempts."""


class Frontier(NamedTuple):
    """The head of the log, and the frontier up to which it can be read."""

    head: int
    """The last allocated position; it may never be committed."""
    safe: int
    """The frontier: no new event can appear at or below this position."""
    held: bool
    """True if an append is open."""


class LogView(NamedTuple):
    """A frontier, and the run of the server it is valid in."""

    head: int
    safe: int
    held: bool
    run: int | None
    """A crash or a failover begins another run; ``None``: unknown."""


UNSEEN = LogView(0, 0, False, None)


class EventReader:
    """Reads the frontier and the events in separate statements, in this order."""

    def __init__(self, database: Database, pool: Callable[[], Any], decoder: Decoder) -> None:
        self._database = database
        self._pool = pool
        self._decoder = decoder
        self._sql = sql.load("howdah.events", schema=database.schema)

    async def frontier(self) -> Frontier:
        """Return the current frontier."""
        async with self._reach() as conn:
            return Frontier(*await conn.fetchrow(self._sql["frontier"], 0))

    async def stream(
        self, stream: str, *, after: int, before: int | None, types: Iterable[str] | None, backwards: bool, limit: int
    ) -> list[Event]:
        """Return the events of one stream, by version."""
        kind, id = split_stream(stream)
        check_limit(limit)
        verb = "stream_backwards" if backwards else "stream_forwards"
        bound = END if before is None else before
        async with self._reach() as conn:
            rows = await conn.fetch(self._sql[verb], kind, id, after, bound, _list(types), limit)
        return events_of(rows, self._decoder)

    async def read(
        self,
        *,
        after: int,
        before: int | None,
        only: Iterable[str] | None,
        types: Iterable[str] | None,
        backwards: bool,
        limit: int,
    ) -> list[Event]:
        """Return events by position."""
        check_limit(limit)
        verb = "read_backwards" if backwards else "read_forwards"
        scope = _list(only), _list(types)
        for left in reversed(range(TRIES)):
            try:
                async with self._reach() as conn:
                    frontier = LogView(*await conn.fetchrow(self._sql["poll_frontier"], 0))
                    upto = frontier.safe if before is None else min(frontier.safe, before - 1)
                    rows = await conn.fetch(self._sql[verb], after, upto, *scope, limit, frontier.run)
                return events_of(rows, self._decoder)
            except asyncpg.PostgresError as error:  # Behind a pooler two statements can reach two different servers.
                if not is_restarted(error) or not left:
                    raise
                await asyncio.sleep(PAUSE)
        raise AssertionError

    def _reach(self) -> Acquired:
        return Acquired(self._pool, self._database, "reading")


def is_restarted(error: BaseException) -> bool:
    """Return whether the server rejected a read because its frontier is of another run."""
    return getattr(error, "sqlstate", None) == RESTARTED


def check_limit(limit: int) -> None:
    """Raise if a page size is out of range."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise EventError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")


def _list(names: Iterable[str] | None) -> list[str] | None:
    if isinstance(names, str):
        raise EventError(f"give a list of names, not the single text {names!r}")
    return None if names is None else list(names)


WINDOW = 50_000
"""Positions scanned per statement for a consumer that filters events."""


class EventPage(NamedTuple):
    """Events, and the position up to which the log was scanned."""

    events: list[Event]
    to: int
    full: bool
    """True if there may be more below the same frontier."""


class EventPrefetch:
    """Prefetches the next events of one partition while the current ones are handled.

    Reads below the frontier, where nothing changes in this run of the server, so reading ahead is safe.
    """

    def __init__(
        self, pool: Any, sql: Mapping[str, str], consumer: Consumer, partition: Partition, decoder: Decoder
    ) -> None:
        self._pool = pool
        self._sql = sql
        self._partition = partition
        self._decoder = decoder
        options = consumer.options
        self._only = list(options.only) if options.only else None
        self._types = list(options.types) if options.types else None
        self._scoped = bool(self._only or self._types or partition.partitions > 1)
        self._ahead: tuple[int, int, asyncio.Task[EventPage]] | None = None

    async def read(self, after: int, safe: int, limit: int) -> EventPage:
        """Return the next events after a position, up to ``limit``."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if ahead[:2] == (after, limit):
                return await ahead[2]
            ahead[2].cancel()
        return await self._read(after, safe, limit)

    def read_ahead(self, after: int, safe: int, limit: int) -> None:
        """Start reading the next page."""
        self._ahead = (after, limit, asyncio.create_task(self._read(after, safe, limit)))

    async def close(self) -> None:
        """Discard the prefetched page."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[2].cancel()
            await asyncio.gather(ahead[2], return_exceptions=True)

    async def _read(self, after: int, safe: int, limit: int) -> EventPage:
        partition = self._partition
        async with self._pool.acquire() as conn:
            if self._scoped:
                upto = min(safe, after + WINDOW)
                rows = await conn.fetch(
                    self._sql["follow_scoped"],
                    after,
                    upto,
                    limit,
                    self._only,
                    self._types,
                    partition.part,
                    partition.partitions,
                    partition.run,
                )
            else:
                upto = safe
                rows = await conn.fetch(self._sql["follow"], after, upto, limit, partition.run)
        events = events_of(rows, self._decoder)
        if len(events) == limit:
            return EventPage(events, events[-1].position, True)
        return EventPage(events, max(after, upto), upto < safe)
