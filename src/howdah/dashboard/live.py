"""Live updates: polls for changes once a second, and sends them to every open page.

A topic is a column of the look; when its value is another than a second ago, pages that show it fetch themselves anew.
Nothing is read while no page is open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from howdah.dashboard.errors import RequestError
from howdah.loops import Outage, wait

log = logging.getLogger("howdah")

EVERY = 1.0
QUIET = 15.0
"""Seconds without a message after which a stream sends a keep-alive."""
MOST = 100
"""Streams of one process."""
PULSE = "pulse"
"""The topic whose value itself is told, as JSON."""


class LiveUpdates:
    """Polls while at least one page is open."""

    def __init__(self, look: Callable[[], Awaitable[Mapping[str, Any]]], every: float = EVERY) -> None:
        self._look = look
        self._every = every
        self._followers: set[_Follower] = set()
        self._seen: dict[str, Any] = {}
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def join(self) -> AsyncIterator[str]:
        """Yield changes from now on as lines of an event stream, until :meth:`stop`."""
        if len(self._followers) >= MOST:
            raise RequestError(503, f"{MOST} pages are live already.", "Close some, or reload when others are closed.")
        return self._follow(_Follower())

    def stop(self) -> None:
        """End every stream."""
        self._over.set()
        for follower in self._followers:
            follower.news.set()

    async def _follow(self, follower: _Follower) -> AsyncIterator[str]:
        self._followers.add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="howdah dashboard")
        try:
            yield "retry: 1000\n\n"
            while not self._over.is_set():
                if not await wait(follower.news, QUIET):
                    yield ": still here\n\n"
                    continue
                for line in follower.take():
                    yield line
            yield "event: over\ndata: \n\n"
        finally:
            self._followers.discard(follower)

    async def _watch(self) -> None:
        outage = Outage("dashboard")
        while self._followers and not self._over.is_set():
            try:
                now = dict(await self._look())
            except Exception as error:
                await wait(self._over, max(self._every, outage.fail(error)))
                continue
            outage.heal()
            changed = {topic for topic, value in now.items() if self._seen.get(topic) != value}
            self._seen = now
            for follower in self._followers:
                follower.tell(changed, now)
            await wait(self._over, self._every)


class _Follower:
    """One stream; slow ones hear of many changes at once, and nothing piles up."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._changed: set[str] = set()
        self._pulse: Any = None

    def tell(self, changed: set[str], now: Mapping[str, Any]) -> None:
        # something may have changed between the page and its stream, so the first time it is everything
        self._changed |= set(now) if self._pulse is None else changed
        self._pulse = now.get(PULSE, {})
        if self._changed:
            self.news.set()

    def take(self) -> list[str]:
        changed, self._changed = self._changed, set()
        self.news.clear()
        said = []
        if PULSE in changed:
            said.append(f"event: pulse\ndata: {msgspec.json.encode(self._pulse).decode()}\n\n")
        if topics := sorted(changed - {PULSE}):
            said.append(f"event: changed\ndata: {' '.join(topics)}\n\n")
        return said
