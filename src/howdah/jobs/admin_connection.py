"""Connections of the admin: reads with a statement timeout, and transactions for actions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from howdah.errors import DatabaseUnreachable, HowdahError
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, Database, hide_password

READ_TIMEOUT = 5.0
"""Seconds a read may take."""
BY_INDEX = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)
"""
"""Forces index order, whatever the statistics: sorting the whole history is never faster."""


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
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self._database.dsn)}: {error}") from error
