"""Holds: kinds that are not claimed for a while because a dependency of theirs is rate limited."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from howdah.outcome import Ack
from howdah.postgres.database import Session

log = logging.getLogger("howdah")

LONGEST = 3600.0
"""Longest hold in seconds that a handler or worker can request."""
CACHE_TTL = 1.0
"""Cache lifetime in seconds."""
LOCK_TIMEOUT = "set local lock_timeout = '1s'"


class Holds:
    """Cached list of held kinds, so that claims do not read the table each time."""

    def __init__(self, session: Session, sql: Mapping[str, str], kinds: Sequence[str] = ()) -> None:
        self._session = session
        self._sql = sql
        self._kinds = kinds
        self._expires = 0.0
        self.held: frozenset[str] = frozenset()
        self.free = list(kinds)
        """The kinds that may be claimed."""

    @property
    def stale(self) -> bool:
        """True if the cache has expired."""
        return time.monotonic() >= self._expires

    async def refresh(self) -> float | None:
        """Read the holds; return the seconds until the first one ends."""
        rows = await self._session.fetch(self._sql["holds"])
        soonest: float | None = min((row["left_over"] for row in rows), default=None)
        self._expires = time.monotonic() + (CACHE_TTL if soonest is None else min(CACHE_TTL, soonest))
        self._set_held(row["kind"] for row in rows)
        return soonest

    async def put(self, kind: str, seconds: float, reason: str | None) -> None:
        """Hold a kind on all nodes; on this one immediately."""
        await self._session.fetch(self._sql["hold"], kind, seconds, (reason or "rate limited")[:500])
        self._set_held({*self.held, kind})

    async def put_with(self, acks: Sequence[Ack], statement: str, *args: Any) -> list[Any]:
        """Run the statement that records outcomes, and write the holds of the accepted ones in the same transaction.

        They commit together, so a lost reply loses no hold. A hold whose row is locked is skipped after a second, so
        that it does not delay outcomes.
        """
        async with self._session.use() as conn, conn.transaction():
            rows: list[Any] = await conn.fetch(statement, *args)
            accepted = {(row[0], row[1]) for row in rows}
            wanted: dict[str, Ack] = {}
            for ack in acks:
                if ack.hold and (ack.job.token, ack.job.id) in accepted:
                    kind = ack.job.kind
                    wanted[kind] = max(wanted.get(kind, ack), ack, key=lambda each: each.hold or 0.0)
            try:
                async with conn.transaction():
                    await conn.execute(LOCK_TIMEOUT)
                    for kind, ack in sorted(wanted.items()):  # in order, so that two nodes cannot deadlock
                        reason = (ack.message or "rate limited")[:500]
                        await conn.fetch(self._sql["hold"], kind, min(ack.hold or 0.0, LONGEST), reason)
            except asyncpg.LockNotAvailableError:
                log.warning(
                    "could not hold %s: its row in table hold is locked by another transaction",
                    ", ".join(sorted(wanted)),
                )
        self._set_held({*self.held, *wanted})
        return rows

    def _set_held(self, kinds: Iterable[str]) -> None:
        self.held = frozenset(kinds)
        self.free = [kind for kind in self._kinds if kind not in self.held]
