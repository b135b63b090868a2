"""Look: connections for people, who must get an answer in time and hear why when they do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from howdah.errors import DatabaseUnreachable, HowdahError
from howdah.pg import sql
from howdah.pg.database import BROKEN, Database, hide_password

PATIENCE = 5.0
"""Seconds a look at the tables may take."""
BY_INDEX = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)
"""
"""A page is read in the order of an index, whatever statistics say: sorting all of history is never quicker."""


class Look:
    """Reaches the tables of jobs, to read or to act."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._database = database
        self._pool = pool
        self.sql = sql.load("howdah.jobs", schema=database.schema)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Any]:
        """A connection that reads one moment and gives up in time."""
        async with self.reach() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            await conn.execute(BY_INDEX, str(int(PATIENCE * 1000)))
            try:
                yield conn
            except asyncpg.QueryCanceledError:
                raise HowdahError(
                    f"this took longer than {PATIENCE:g} s and was stopped; ask by id, by state failed, queued or"
                    " running, or without queue, kind and key"
                ) from None

    @asynccontextmanager
    async def act(self) -> AsyncIterator[Any]:
        """A transaction: an act, and the record of it."""
        async with self.reach() as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def reach(self) -> AsyncIterator[Any]:
        """A connection; what breaks it is named for what it is."""
        try:
            async with (await self._pool()).acquire() as conn:
                yield conn
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self._database.dsn)}: {error}") from error
