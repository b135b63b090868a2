"""Search of jobs: filters, read-only snapshots, and scans newest first, in windows, within a time limit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import asyncpg

from howdah.errors import ConfigError, DatabaseUnreachable, HowdahError
from howdah.job import State
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, NO_SCHEMA, Database, raise_if_no_schema
from howdah.postgres.dsn import hide_password

LONGEST_TEXT = 1000
TIMES = ("enqueued_after", "enqueued_before", "finished_after", "finished_before")
ENDED = (State.DONE, State.FAILED, State.CANCELLED)
READ_TIMEOUT = 5.0
"""Seconds a read may take."""
BY_INDEX = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)
"""
"""Forces index order, whatever the statistics: sorting the whole history is never faster."""
NEWEST = 2**63 - 1
FIRST_WINDOW, LARGEST_WINDOW = 1000, 50_000
QUICK = 0.2
"""Seconds; a window that takes less is followed by a larger one."""
WITHIN = "select set_config('statement_timeout', $1, true)"


class Fields(TypedDict, total=False):
    """The fields of a :class:`Filter`, but for its state, as keyword arguments."""

    queue: str | None
    kind: str | None
    key: str | None
    enqueued_after: datetime | None
    enqueued_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    text: str | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Jobs that match all of these; ``None`` matches anything."""

    state: State | str | None = None
    queue: str | None = None
    kind: str | None = None
    key: str | None = None
    enqueued_after: datetime | None = None
    """At this moment or later."""
    enqueued_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    text: str | None = None
    """A substring of the arguments or of the last error; case-sensitive."""
    fingerprint: str | None = None
    """The fingerprint of ``admin.failures``; failed and cancelled jobs only."""

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in tuple(State):
            raise ConfigError(f"there is no state {self.state!r}; use {', '.join(State)}")
        for name in TIMES:
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"{name} {moment.isoformat()} has no time zone; add one")
        if self.state in (State.QUEUED, State.RUNNING) and (self.finished_after or self.finished_before):
            raise ConfigError(f"no {self.state} job has finished; leave out finished_after and finished_before")
        if self.fingerprint is not None and self.state not in (State.FAILED, State.CANCELLED):
            raise ConfigError("only failed and cancelled jobs have a fingerprint; add state='failed'")
        for name in ("queue", "kind", "key", "text", "fingerprint"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or "\0" in value or len(value) > LONGEST_TEXT):
                raise ConfigError(f"{name} must be at most {LONGEST_TEXT} characters of text, got {value!r:.80}")

    @classmethod
    def of(cls, state: Filter | State | str | None, fields: Fields) -> Filter:
        """Return a filter with more of its fields set."""
        return replace(state, **fields) if isinstance(state, Filter) else cls(state=state, **fields)

    @property
    def given(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def plain(self) -> bool:
        """True if only the state is set."""
        return not self.given.keys() - {"state"}

    @property
    def inspects(self) -> bool:
        """True if matching needs more than state, queue, kind and key."""
        return bool(self.given.keys() - {"state", "queue", "kind", "key"})

    def __str__(self) -> str:
        words = [f"{name} {value}" for name, value in self.given.items() if name != "state"]
        return " with ".join([f"{self.state or 'any'} jobs", *([", ".join(words)] if words else [])])


class AdminConnection:
    """Opens connections to the job tables for reads and actions."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._database = database
        self._pool = pool
        self.sql = sql.load("howdah.jobs", schema=database.schema)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Any]:
        """Return a read-only snapshot with a statement timeout."""
        async with self.reach() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            await conn.execute(BY_INDEX, str(int(READ_TIMEOUT * 1000)))
            try:
                yield conn
            except asyncpg.QueryCanceledError:
                raise HowdahError(
                    f"this took longer than {READ_TIMEOUT:g} s and was stopped; ask by id, by state failed, queued or"
                    " running, or without queue, kind and key"
                ) from None

    @asynccontextmanager
    async def act(self) -> AsyncIterator[Any]:
        """Return a transaction for an action and its audit record."""
        async with self.reach() as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def reach(self) -> AsyncIterator[Any]:
        """Return a connection; a broken one raises :class:`DatabaseUnreachable`."""
        try:
            async with (await self._pool()).acquire() as conn:
                yield conn
        except NO_SCHEMA as error:
            raise_if_no_schema(self._database, error)
            raise
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self._database.dsn)}: {error}") from error


Visible = Callable[[Any, Sequence[int]], Awaitable[Sequence[int]]]
"""Given a connection and ids, returns those of jobs in which the searched text is visible."""


class SearchResult(NamedTuple):
    """The result of a search."""

    ids: list[int]
    looked: int
    """Jobs examined."""
    next: int | None
    """Where to continue; ``None``: there are no more."""
    cut: bool
    """True if the time limit was reached."""


class SearchWindow(NamedTuple):
    """One window of examined jobs."""

    looked: int
    lowest: int | None
    ids: Sequence[int]


class Search:
    """Scans jobs in the order of their ids, whatever the filter."""

    def __init__(self, statements: dict[str, str]) -> None:
        self._sql = statements

    async def find(
        self,
        conn: Any,
        filter: Filter,
        *,
        before: int | None,
        limit: int,
        patience: float | None = None,
        visible: Visible | None = None,
    ) -> SearchResult:
        """Return up to ``limit`` jobs below ``before``. At the time limit the result says where to continue.

        ``visible`` returns which of the found jobs match by what is shown of them; the others count as not found.
        """
        until = time.monotonic() + (READ_TIMEOUT if patience is None else patience)
        first, cursor = await self._bounds(conn, filter, NEWEST if before is None else max(0, min(before, NEWEST)))
        size = limit if filter.plain else min(max(FIRST_WINDOW, 4 * limit), LARGEST_WINDOW)
        ids: list[int] = []
        looked = 0
        while True:
            began = time.monotonic()
            try:
                window = await self._within(conn, filter, cursor, size, limit - len(ids), until - began)
            except asyncpg.QueryCanceledError:
                if not looked:
                    raise
                return SearchResult(ids, looked, cursor, True)
            full = len(window.ids) >= limit - len(ids)  # there may be more in this window
            ids += window.ids if visible is None else await visible(conn, window.ids)
            looked += window.looked
            if len(ids) >= limit:
                return SearchResult(ids, looked, ids[-1], False)
            if not full and (window.looked < size or window.lowest is None or window.lowest <= first):
                return SearchResult(ids, looked, None, False)
            cursor = window.ids[-1] if full or window.lowest is None else window.lowest
            if time.monotonic() >= until:
                return SearchResult(ids, looked, cursor, True)
            if time.monotonic() - began < QUICK:
                size = min(2 * size, LARGEST_WINDOW)

    async def _bounds(self, conn: Any, filter: Filter, before: int) -> tuple[int, int]:
        """Translate times into a range of ids, which rise with time; a job finishes after it is enqueued."""
        ends = [end for end in (filter.enqueued_before, filter.finished_before) if end is not None]
        if filter.enqueued_after is None and not ends:
            return 0, before
        row = await conn.fetchrow(self._sql["bounds"], filter.enqueued_after, min(ends, default=None))
        return row["first"], min(before, row["before"])

    async def _within(
        self, conn: Any, filter: Filter, before: int, size: int, most: int, seconds: float
    ) -> SearchWindow:
        async with conn.transaction():  # a savepoint: a timeout must not abort the outer transaction
            await conn.execute(WITHIN, str(max(1, int(seconds * 1000))))
            return await self._window(conn, filter, before, size, most)

    async def _window(self, conn: Any, filter: Filter, before: int, size: int, most: int) -> SearchWindow:
        match filter.state:
            case State.QUEUED | State.RUNNING if filter.key is not None:
                named = (filter.key, str(filter.state), before, filter.queue, filter.kind)
                return await self._matching(conn, filter, "list_held", *named, most=most)
            case State.QUEUED | State.RUNNING:
                scope = (before, filter.queue, filter.kind, size)
                return await self._matching(conn, filter, f"list_{filter.state}", *scope, most=most)
            case _ if filter.key is not None:
                return await self._matching(conn, filter, "list_keyed", before, filter.key, size, most=most)
            case State.DONE if filter.plain:
                return await self._matching(conn, filter, "list_done", before, size, most=most)
            case State.FAILED | State.CANCELLED:
                scope = (before, size, *scope_of(filter), filter.state[0], most, filter.fingerprint)
                return SearchWindow(*await conn.fetchrow(self._sql["search_bad"], *scope))
            case _:
                scope = (before, size, *scope_of(filter), filter.state is not None, most)
                return SearchWindow(*await conn.fetchrow(self._sql["search_all"], *scope))

    async def _matching(self, conn: Any, filter: Filter, source: str, *scope: Any, most: int) -> SearchWindow:
        """Return a window of jobs found by an index, and those of them that match."""
        ids = [row["id"] for row in await conn.fetch(self._sql[source], *scope)]
        lowest, looked = (ids[-1] if ids else None), len(ids)
        live = filter.state in (State.QUEUED, State.RUNNING)
        if ids and (filter.inspects or (filter.key is not None and not live)):
            state = None if filter.state is None or live else filter.state[0]
            rows = await conn.fetch(self._sql["match"], ids, state, *scope_of(filter), filter.fingerprint)
            ids = [row["id"] for row in rows]
        return SearchWindow(looked, lowest, ids[:most])


def scope_of(filter: Filter) -> tuple[Any, ...]:
    """Return the fields of a filter in the order of the statements' parameters."""
    return (
        filter.queue,
        filter.kind,
        filter.enqueued_after,
        filter.enqueued_before,
        filter.finished_after,
        filter.finished_before,
        filter.text,
    )
