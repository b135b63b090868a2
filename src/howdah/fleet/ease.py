"""Ease: how close together requests may come. A control plane allows each worker so many a second."""

from __future__ import annotations

import asyncio
import time

from howdah.service import wait

SHORTEST = 0.025
"""Seconds between two claims, or two reports; what happens meanwhile goes along with the next."""
AFTER_NOTHING = 0.25
"""Seconds until the next claim after one that found nothing."""


class Ease:
    """Turns that do not come too fast. A single one never waits."""

    def __init__(self) -> None:
        self._next = 0.0

    async def turn(self, never_mind: asyncio.Event | None = None) -> bool:
        """Wait for the next turn, and take it; false when it was called off meanwhile."""
        now = time.monotonic()
        start = max(now, self._next)
        if start > now and await wait(never_mind or asyncio.Event(), start - now):
            return False
        self._next = start + SHORTEST
        return True

    def slower(self) -> None:
        """There was nothing; there is no hurry."""
        self._next = max(self._next, time.monotonic() + AFTER_NOTHING)
