"""Buckets: how often something may happen, for each of many; whoever does not wait goes on waiting."""

from __future__ import annotations

import time
from collections import OrderedDict

MOST_KNOWN = 10_000


class Buckets:
    """So many at once, and so many a second after that, for each name. Those not heard of for longest are forgotten."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self._burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Seconds until it may happen again; 0 when it may now, which is counted."""
        now = time.monotonic()
        left = self._now(name, now)
        self._left.pop(name, None)
        self._left[name] = (max(0.0, left - 1), now)
        if len(self._left) > MOST_KNOWN:
            self._left.popitem(last=False)
        return (1 - left) / self.rate if left < 1 else 0.0

    def wait(self, name: str) -> float:
        """Seconds until it may happen again; nothing is counted."""
        left = self._now(name, time.monotonic())
        return (1 - left) / self.rate if left < 1 else 0.0

    def _now(self, name: str, now: float) -> float:
        left, at = self._left.get(name, (self._burst, now))
        return min(self._burst, left + (now - at) * self.rate)
