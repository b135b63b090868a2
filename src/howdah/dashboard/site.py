"""Site: what every page is made from: the application, its database through a small pool of its own, what is live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from howdah.app import Howdah
from howdah.dashboard.live import Hub
from howdah.dashboard.logins import Logins
from howdah.errors import DatabaseUnreachable
from howdah.jobs.admin import Admin
from howdah.log.admin import LogAdmin
from howdah.log.read import Reader
from howdah.pg import sql
from howdah.pg.database import BROKEN, hide_password
from howdah.redact import Redact

POOL = 4
"""Connections of the dashboard, whatever is asked of it."""
PATIENCE = 2.0
"""Seconds one statement of a page may take."""
READING = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true)
"""


class Site:
    """Opened at first use; :meth:`close` ends it."""

    def __init__(self, app: Howdah) -> None:
        self.app = app
        self.database = app.database
        self.sql = sql.load("howdah.dashboard", schema=self.database.schema)
        self.admin = Admin(self.database, self.pool)
        self.log = LogAdmin(self.database, self.pool)
        self.logins = Logins(self.database, self.pool)
        self.reader = Reader(self.database, self.pool, app.types)
        self.redact: Redact = app.redact
        self.hub = Hub(self._moment)
        self._opening: asyncio.Task[asyncpg.Pool] | None = None

    async def pool(self) -> asyncpg.Pool:
        """The pool of the dashboard."""
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.create_task(self.database.pool(POOL))
        return await asyncio.shield(self._opening)

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Any]:
        """A connection that reads one moment and gives up in time."""
        try:
            async with (
                (await self.pool()).acquire() as conn,
                conn.transaction(isolation="repeatable_read", readonly=True),
            ):
                await conn.execute(READING, str(int(PATIENCE * 1000)))
                yield conn
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self.database.dsn)}: {error}") from error

    async def fetch(self, verb: str, *args: Any) -> list[Any]:
        """The rows of one of the dashboard's own statements."""
        async with self.look() as conn:
            rows: list[Any] = await conn.fetch(self.sql[verb], *args)
            return rows

    async def _moment(self) -> dict[str, Any]:
        [row] = await self.fetch("moment")
        return dict(row)

    async def close(self) -> None:
        """End streams and connections."""
        self.hub.stop()
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                opening.result().terminate()
