"""Token-bucket rate limiters: one bucket per client, and one per address for unauthenticated requests."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from howdah.dashboard.protection import network_of

MAX_CLIENTS = 10_000
"""Buckets kept in memory; the least recently used is dropped first."""


class RateLimiter:
    """Allow ``burst`` calls at once and ``rate`` calls per second after that, for each client.

    A rejected call also takes a token. A client that keeps calling without waiting stays rejected.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens left and when they were counted, by client."""

    def acquire(self, client: str) -> float:
        """Take a token. Return 0 if the call is allowed, else the seconds to wait before the next one."""
        now = time.monotonic()
        left = self._tokens(client, now)
        self._buckets.pop(client, None)
        self._buckets[client] = (max(0.0, left - 1), now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return (1 - left) / self.rate if left < 1 else 0.0

    def retry_after(self, client: str) -> float:
        """Return the seconds until the next call is allowed, without taking a token."""
        left = self._tokens(client, time.monotonic())
        return (1 - left) / self.rate if left < 1 else 0.0

    def _tokens(self, client: str, now: float) -> float:
        left, at = self._buckets.get(client, (self._burst, now))
        return min(self._burst, left + (now - at) * self.rate)


class UnauthenticatedLimiter:
    """Limits failed authentications per address. Clients with a good token behind the same address are not affected.

    The address is that of the connection: headers such as ``X-Forwarded-For`` can be forged.
    """

    def __init__(self, per_minute: float) -> None:
        self._limiter = RateLimiter(per_minute / 60, per_minute)
        self._lookup = asyncio.Semaphore(1)

    @asynccontextmanager
    async def lookup(self, address: str) -> AsyncIterator[None]:
        """Guard the database lookup of an unknown token: addresses above the limit share one connection."""
        if not self._limiter.retry_after(network_of(address)):
            yield
            return
        async with self._lookup:
            yield

    def count_failure(self, address: str) -> float:
        """Count a failed authentication. Return 0, or the seconds to wait once the address is above its limit."""
        return self._limiter.acquire(network_of(address))
