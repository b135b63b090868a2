"""Searches the ids of jobs that match a filter, newest first, in windows, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from howdah.job import State
from howdah.jobs import admin_connection
from howdah.jobs.filter import Filter

NEWEST = 2**63 - 1
FIRST_WINDOW, LARGEST_WINDOW = 1000, 50_000
QUICK = 0.2
"""Seconds; a window that takes less is followed by a larger one."""
WITHIN = "select set_config('statement_timeout', $1, true)"


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
        self, conn: Any, filter: Filter, *, before: int | None, limit: int, patience: float | None = None
    ) -> SearchResult:
        """Return up to ``limit`` jobs below ``before``. At the time limit the result says where to continue."""
        until = time.monotonic() + (admin_connection.READ_TIMEOUT if patience is None else patience)
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
            ids += window.ids
            looked += window.looked
            if len(ids) >= limit:
                return SearchResult(ids, looked, ids[-1], False)
            if window.looked < size or window.lowest is None or window.lowest <= first:
                return SearchResult(ids, looked, None, False)
            cursor = window.lowest
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
