"""Claims whose reply was lost."""

from __future__ import annotations

import time

from howdah.pg.database import Session

PAUSE = 0.5
"""Seconds between two tries: a claim that the server carries out late is not there at the first."""


class UnansweredClaims:
    """Releases the leases of claims whose reply was lost.

    The jobs of such a claim were not started, so they cost no attempt and need not wait until the lease expires. The
    server may still be carrying out the claim, so each token is released again until its lease was there or, had it
    been there, would have expired.
    """

    def __init__(self, session: Session, release: str, lease: float) -> None:
        self._session = session
        self._release = release
        self._lease = lease
        self._claims: dict[int, tuple[int, float]] = {}
        """Node and time of giving up, by token."""
        self._next = 0.0

    def __bool__(self) -> bool:
        return bool(self._claims)

    def add(self, node: int, token: int) -> None:
        """Remember a claim of a node."""
        self._claims[token] = (node, time.monotonic() + self._lease)
        self._next = 0.0

    async def release(self, now: float) -> None:
        """Release what was claimed."""
        if now < self._next:
            return
        for token, (node, until) in list(self._claims.items()):
            row = await self._session.fetchrow(self._release, node, [token])
            if row["leases"] or now > until:
                del self._claims[token]
        self._next = now + PAUSE
