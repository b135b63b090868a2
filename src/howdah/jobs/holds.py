"""Holds: kinds that are left alone for a while, since what they need answered "not so fast"."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from howdah.pg.database import Session

LONGEST = 3600.0
"""Seconds a kind is held at most, by what a handler or a worker says."""
LOOK = 1.0
"""Seconds what was seen is believed."""


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

    def _leave_alone(self, kinds: Iterable[str]) -> None:
        self.held = frozenset(kinds)
        self.free = [kind for kind in self._kinds if kind not in self.held]
