"""Strangers: requests without a good token, counted by the address they come from. No header is believed."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from howdah.fleet.buckets import Buckets


class Strangers:
    """So many refusals a minute for each address, then it must wait. Nobody else has to, behind the same address."""

    def __init__(self, refusals: float) -> None:
        self._buckets = Buckets(refusals / 60, refusals)
        self._one = asyncio.Semaphore(1)

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """To look somebody up who was never let in: where too many were refused, one after another."""
        if not self._buckets.wait(site(address)):
            yield
            return
        async with self._one:  # however many they are, they keep one connection busy, and no more
            yield

    def count(self, address: str) -> float:
        """Somebody is refused; seconds to wait, if that was so too often lately."""
        return self._buckets.take(site(address))


def site(address: str) -> str:
    """Whose an address is: of the newer ones everybody has a whole network.

    >>> site("192.0.2.7"), site("2001:db8::1"), site("2001:db8::2"), site("")
    ('192.0.2.7', '2001:db8::/64', '2001:db8::/64', '')
    """
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
