"""Read: events by stream or by position, never beyond the safe frontier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import asyncpg

from howdah.errors import EventError
from howdah.log.event import Decoder, Event, events_of, split_stream
from howdah.pg import sql
from howdah.pg.database import Database
from howdah.pg.reach import Reach

LARGEST_PAGE = 10_000
END = 2**63 - 1
RESTARTED = "HD412"
"""The SQLSTATE of a read in another run of the server than that of its frontier."""
TRIES = 5
"""How often a page is read anew because the server was restarted between two statements."""
PAUSE = 0.05
"""Seconds between two of these."""


class Frontier(NamedTuple):
    """How far the log goes, and how far it can be read."""

    head: int
    """The last position that was drawn; it may never be committed."""
    safe: int
    """No event can appear at or below this position any more."""
    held: bool
    """Whether an append is open."""


class Look(NamedTuple):
    """A frontier, and the run of the server that it is true in."""

    head: int
    safe: int
    held: bool
    run: int | None
    """A crash or a failover begins another; ``None``: unknown."""


UNSEEN = Look(0, 0, False, None)


class Reader:
    """Reads in statements of its own, so the frontier and the events are seen in the right order."""

    def __init__(self, database: Database, pool: Callable[[], Any], decoder: Decoder) -> None:
        self._database = database
        self._pool = pool
        self._decoder = decoder
        self._sql = sql.load("howdah.log", schema=database.schema)

    async def frontier(self) -> Frontier:
        """How far the log can be read now."""
        async with self._reach() as conn:
            return Frontier(*await conn.fetchrow(self._sql["frontier"], 0))

    async def stream(
        self, stream: str, *, after: int, before: int | None, types: Iterable[str] | None, backwards: bool, limit: int
    ) -> list[Event]:
        """The events of one stream, by version."""
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
        """Events by position."""
        check_limit(limit)
        verb = "read_backwards" if backwards else "read_forwards"
        scope = _list(only), _list(types)
        for left in reversed(range(TRIES)):
            try:
                async with self._reach() as conn:
                    frontier = Look(*await conn.fetchrow(self._sql["look"], 0))
                    upto = frontier.safe if before is None else min(frontier.safe, before - 1)
                    rows = await conn.fetch(self._sql[verb], after, upto, *scope, limit, frontier.run)
                return events_of(rows, self._decoder)
            except asyncpg.PostgresError as error:  # behind a pooler two statements can meet two servers
                if not is_restarted(error) or not left:
                    raise
                await asyncio.sleep(PAUSE)
        raise AssertionError

    def _reach(self) -> Reach:
        return Reach(self._pool, self._database, "reading")


def is_restarted(error: BaseException) -> bool:
    """Whether the server refused a read because the frontier is of another run."""
    return getattr(error, "sqlstate", None) == RESTARTED


def check_limit(limit: int) -> None:
    """Refuse pages without end."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise EventError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")


def _list(names: Iterable[str] | None) -> list[str] | None:
    if isinstance(names, str):
        raise EventError(f"give a list of names, not the single text {names!r}")
    return None if names is None else list(names)
