"""Search: the ids of jobs that fit a filter, newest first, a window at a time, for as long as there is patience."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from howdah.job import State
from howdah.jobs import look
from howdah.jobs.filter import Filter

NEWEST = 2**63 - 1
FIRST_WINDOW, LARGEST_WINDOW = 1000, 50_000
QUICK = 0.2
"""Seconds: a window that took less is followed by a larger one."""
WITHIN = "select set_config('statement_timeout', $1, true)"


class Found(NamedTuple):
    """What a search came to."""

    ids: list[int]
    looked: int
    """Jobs it looked at."""
    next: int | None
    """Where to go on; ``None``: there are no more."""
    cut: bool
    """Whether it stopped because it took too long."""


class Window(NamedTuple):
    """A few jobs that were looked at."""

    looked: int
    lowest: int | None
    ids: Sequence[int]


class Search:
    """Looks through jobs in the order of their ids, whatever is asked of them."""

    def __init__(self, statements: dict[str, str]) -> None:
        self._sql = statements

    async def find(
        self, conn: Any, filter: Filter, *, before: int | None, limit: int, patience: float | None = None
    ) -> Found:
        """Up to ``limit`` jobs below ``before``. A search that takes too long ends early and says where."""
        until = time.monotonic() + (look.PATIENCE if patience is None else patience)
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
                return Found(ids, looked, cursor, True)
            ids += window.ids
            looked += window.looked
            if len(ids) >= limit:
                return Found(ids, looked, ids[-1], False)
            if window.looked < size or window.lowest is None or window.lowest <= first:
                return Found(ids, looked, None, False)
            cursor = window.lowest
            if time.monotonic() >= until:
                return Found(ids, looked, cursor, True)
            if time.monotonic() - began < QUICK:
                size = min(2 * size, LARGEST_WINDOW)

    async def _bounds(self, conn: Any, filter: Filter, before: int) -> tuple[int, int]:
        """Ids rise with time, so a span of time is one of ids. What finished before a moment was enqueued before it."""
        ends = [end for end in (filter.enqueued_before, filter.finished_before) if end is not None]
        if filter.enqueued_after is None and not ends:
            return 0, before
        row = await conn.fetchrow(self._sql["bounds"], filter.enqueued_after, min(ends, default=None))
        return row["first"], min(before, row["before"])

    async def _within(self, conn: Any, filter: Filter, before: int, size: int, most: int, seconds: float) -> Window:
        async with conn.transaction():  # what is cut short must not end the transaction around it
            await conn.execute(WITHIN, str(max(1, int(seconds * 1000))))
            return await self._window(conn, filter, before, size, most)

    async def _window(self, conn: Any, filter: Filter, before: int, size: int, most: int) -> Window:
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
                return Window(*await conn.fetchrow(self._sql["search_bad"], *scope))
            case _:
                scope = (before, size, *scope_of(filter), filter.state is not None, most)
                return Window(*await conn.fetchrow(self._sql["search_all"], *scope))

    async def _matching(self, conn: Any, filter: Filter, source: str, *scope: Any, most: int) -> Window:
        """A window of jobs that an index finds, and those of them that fit."""
        ids = [row["id"] for row in await conn.fetch(self._sql[source], *scope)]
        lowest, looked = (ids[-1] if ids else None), len(ids)
        live = filter.state in (State.QUEUED, State.RUNNING)
        if ids and (filter.inspects or (filter.key is not None and not live)):
            state = None if filter.state is None or live else filter.state[0]
            rows = await conn.fetch(self._sql["match"], ids, state, *scope_of(filter), filter.fingerprint)
            ids = [row["id"] for row in rows]
        return Window(looked, lowest, ids[:most])


def scope_of(filter: Filter) -> tuple[Any, ...]:
    """The fields that statements take in this order."""
    return (
        filter.queue,
        filter.kind,
        filter.enqueued_after,
        filter.enqueued_before,
        filter.finished_after,
        filter.finished_before,
        filter.text,
    )
