"""Login sessions, shared by all replicas; only hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from howdah.dashboard.access import Visitor
from howdah.postgres import sql
from howdah.postgres.database import Database

LASTS = 12 * 3600.0
"""Lifetime of a session, in seconds."""
FRESH = 2.0
"""Cache lifetime in seconds: a session ended on another replica is rejected after at most this."""
MOST_KNOWN = 1000


class DashboardSessions:
    """Begin, find and end sessions."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._pool = pool
        self._sql = sql.load("howdah.dashboard", schema=database.schema)
        self._known: OrderedDict[bytes, tuple[float, Visitor]] = OrderedDict()

    async def begin(self, visitor: Visitor) -> str:
        """Begin a session; return the cookie's value."""
        id = secrets.token_urlsafe(32)
        async with (await self._pool()).acquire() as conn:
            await conn.execute(self._sql["forget_logins"])
            await conn.execute(
                self._sql["begin_login"], _hash(id), visitor.name, visitor.level, visitor.token, float(LASTS)
            )
        return id

    async def find(self, id: str) -> Visitor | None:
        """Return the user of a session, while it lasts."""
        key = _hash(id)
        at, visitor = self._known.get(key, (0.0, None))
        if visitor is not None and time.monotonic() - at < FRESH:
            return visitor
        async with (await self._pool()).acquire() as conn:
            row = await conn.fetchrow(self._sql["find_login"], key)
        self._known.pop(key, None)
        if row is None:
            return None
        visitor = Visitor(row["who"], row["level"], row["token"])
        self._known[key] = (time.monotonic(), visitor)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return visitor

    async def end(self, id: str) -> None:
        """Sign out."""
        self._known.pop(_hash(id), None)
        async with (await self._pool()).acquire() as conn:
            await conn.execute(self._sql["end_login"], _hash(id))


def _hash(id: str) -> bytes:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()
