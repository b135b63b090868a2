"""Reads events by stream or by position, never beyond the safe frontier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import asyncpg

from howdah.errors import EventError
from howdah.events.event import Decoder, Event, events_of, split_stream
from howdah.postgres import sql
from howdah.postgres.acquire import Acquired
from howdah.postgres.database import Database

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
                    frontier = LogView(*await conn.fetchrow(self._sql["look"], 0))
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
