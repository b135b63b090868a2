"""Sessions: several connections that heal themselves, for what many ask for at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from howdah.pg.database import Database, Session


class Sessions(Session):
    """Used like one. A call takes the connection that was free last, so as few are open as are needed."""

    def __init__(self, database: Database, role: str, most: int) -> None:
        super().__init__(database, role)
        self._every = [Session(database, role) for _ in range(most)]
        self._free = list(self._every)
        self._turns = asyncio.Semaphore(most)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Take a connection for several statements."""
        async with self._turns:
            session = self._free.pop()
            try:
                async with session.use() as conn:
                    yield conn
            finally:
                self._free.append(session)

    def drop(self) -> None:
        """Throw all connections away; the next calls open new ones."""
        for session in self._every:
            session.drop()

    async def close(self) -> None:
        """Close those that are open."""
        for session in self._every:
            await session.close()
