"""Prefetch of one partition's next events while the current ones are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from howdah.events.consumer import Consumer
from howdah.events.event import Decoder, Event, events_of
from howdah.events.partition import Partition

WINDOW = 50_000
"""Positions scanned per statement for a consumer that filters events."""


class EventPage(NamedTuple):
    """Events, and the position up to which the log was scanned."""

    events: list[Event]
    to: int
    full: bool
    """True if there may be more below the same frontier."""


class EventPrefetch:
    """Reads below the frontier, where nothing changes in this run of the server, so reading ahead is safe."""

    def __init__(
        self, pool: Any, sql: Mapping[str, str], consumer: Consumer, share: Partition, decoder: Decoder
    ) -> None:
        self._pool = pool
        self._sql = sql
        self._share = share
        self._decoder = decoder
        options = consumer.options
        self._only = list(options.only) if options.only else None
        self._types = list(options.types) if options.types else None
        self._scoped = bool(self._only or self._types or share.partitions > 1)
        self._ahead: tuple[int, int, asyncio.Task[EventPage]] | None = None

    async def read(self, after: int, safe: int, limit: int) -> EventPage:
        """Return the next events after a position, up to ``limit``."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if ahead[:2] == (after, limit):
                return await ahead[2]
            ahead[2].cancel()
        return await self._read(after, safe, limit)

    def read_ahead(self, after: int, safe: int, limit: int) -> None:
        """Start reading the next page."""
        self._ahead = (after, limit, asyncio.create_task(self._read(after, safe, limit)))

    async def close(self) -> None:
        """Discard the prefetched page."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[2].cancel()
            await asyncio.gather(ahead[2], return_exceptions=True)

    async def _read(self, after: int, safe: int, limit: int) -> EventPage:
        share = self._share
        async with self._pool.acquire() as conn:
            if self._scoped:
                upto = min(safe, after + WINDOW)
                rows = await conn.fetch(
                    self._sql["follow_scoped"],
                    after,
                    upto,
                    limit,
                    self._only,
                    self._types,
                    share.part,
                    share.partitions,
                    share.run,
                )
            else:
                upto = safe
                rows = await conn.fetch(self._sql["follow"], after, upto, limit, share.run)
        events = events_of(rows, self._decoder)
        if len(events) == limit:
            return EventPage(events, events[-1].position, True)
        return EventPage(events, max(after, upto), upto < safe)
