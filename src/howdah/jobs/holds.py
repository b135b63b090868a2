"""Holds: kinds that are left alone for a while, since what they need answered "not so fast"."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from howdah.outcome import Ack
from howdah.pg.database import Session

log = logging.getLogger("howdah")

LONGEST = 3600.0
"""Seconds a kind is held at most, by what a handler or a worker says."""
LOOK = 1.0
"""Seconds what was seen is believed."""
PATIENCE = "set local lock_timeout = '1s'"


class Holds:
    """What is held now, as it was last seen; nobody looks with every claim."""

    def __init__(self, session: Session, sql: Mapping[str, str], kinds: Sequence[str] = ()) -> None:
        self._session = session
        self._sql = sql
        self._kinds = kinds
        self._look_at = 0.0
        self.held: frozenset[str] = frozenset()
        self.free = list(kinds)
        """Those of the kinds that may be claimed."""

    @property
    def stale(self) -> bool:
        """Whether it is time for another look."""
        return time.monotonic() >= self._look_at

    async def look(self) -> float | None:
        """See what is held; seconds until the first of them is free."""
        rows = await self._session.fetch(self._sql["holds"])
        soonest: float | None = min((row["left_over"] for row in rows), default=None)
        self._look_at = time.monotonic() + (LOOK if soonest is None else min(LOOK, soonest))
        self._leave_alone(row["kind"] for row in rows)
        return soonest

    async def put(self, kind: str, seconds: float, reason: str | None) -> None:
        """Leave a kind alone for a while, everywhere; here from now on."""
        await self._session.fetch(self._sql["hold"], kind, seconds, (reason or "rate limited")[:500])
        self._leave_alone({*self.held, kind})

    async def put_with(self, acks: Sequence[Ack], statement: str, *args: Any) -> list[Any]:
        """Run the statement that records outcomes, and write the holds of those accepted in the same transaction.

        Neither is there without the other, so a lost reply loses no hold. A hold whose row is locked for long is left
        out: it must not keep outcomes from being recorded.
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
                    await conn.execute(PATIENCE)
                    for kind, ack in sorted(wanted.items()):  # in order: two nodes must not wait for each other
                        reason = (ack.message or "rate limited")[:500]
                        await conn.fetch(self._sql["hold"], kind, min(ack.hold or 0.0, LONGEST), reason)
            except asyncpg.LockNotAvailableError:
                log.warning("could not hold %s: the row in table hold is locked", ", ".join(sorted(wanted)))
        self._leave_alone({*self.held, *wanted})
        return rows

    def _leave_alone(self, kinds: Iterable[str]) -> None:
        self.held = frozenset(kinds)
        self.free = [kind for kind in self._kinds if kind not in self.held]
