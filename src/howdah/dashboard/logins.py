"""Logins: the sessions of those who signed in, shared by all replicas; only hashes are kept."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from howdah.dashboard.access import Visitor
from howdah.pg import sql
from howdah.pg.database import Database

LASTS = 12 * 3600.0
"""Seconds after which somebody signs in again."""
FRESH = 2.0
"""Seconds a session is believed: one that was ended elsewhere is refused after at most this."""
MOST_KNOWN = 1000


class Logins:
    """Begin, find and end sessions."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._pool = pool
        self._sql = sql.load("howdah.dashboard", schema=database.schema)
        self._known: OrderedDict[bytes, tuple[float, Visitor]] = OrderedDict()

    async def begin(self, visitor: Visitor) -> str:
        """What the browser keeps."""
        id = secrets.token_urlsafe(32)
        async with (await self._pool()).acquire() as conn:
            await conn.execute(self._sql["forget_logins"])
            await conn.execute(
                self._sql["begin_login"], _hash(id), visitor.name, visitor.level, visitor.token, float(LASTS)
            )
        return id

    async def find(self, id: str) -> Visitor | None:
        """Whose session it is, while it lasts."""
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
