"""Live updates: polls for changes once a second, and sends them to every open page.

Each topic has a value. When it differs from the one a second ago, pages that show the topic reload themselves.
Nothing is read while no page is open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from howdah.dashboard.context import PULSE
from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.loops import Outage, wait

EVERY = 1.0
"""Seconds between two reads of the topics."""
KEEP_ALIVE_EVERY = 15.0
"""Seconds without a message after which a stream sends a keep-alive."""
CHECK_EVERY = 3.0
"""Seconds between two checks that the session of a stream is still valid."""
MAX_STREAMS = 100
"""Open streams of one process."""


async def live(visit: DashboardRequest) -> Response:
    """Send the topics that changed as an event stream."""
    updates: LiveUpdates = visit.request.state.dashboard.live
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        updates.stream(visit.request.state.still_allowed), media_type="text/event-stream", headers=headers
    )


class LiveUpdates:
    """Polls while at least one page is open."""

    def __init__(self, read: Callable[[], Awaitable[Mapping[str, Any]]], every: float = EVERY) -> None:
        self._read = read
        self._every = every
        self._streams: set[_Stream] = set()
        self._last: dict[str, Any] = {}
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def stream(self, still_allowed: Callable[[], Awaitable[object]]) -> AsyncIterator[str]:
        """Yield changes as lines of an event stream, until :meth:`stop` or until ``still_allowed`` is false."""
        if len(self._streams) >= MAX_STREAMS:
            raise RequestError(
                503, f"{MAX_STREAMS} pages are live already.", "Close some, or reload when others are closed."
            )
        return self._follow(_Stream(), still_allowed)

    def stop(self) -> None:
        """End every stream."""
        self._stopping.set()
        for stream in self._streams:
            stream.pending.set()

    async def _follow(self, stream: _Stream, still_allowed: Callable[[], Awaitable[object]]) -> AsyncIterator[str]:
        self._streams.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="howdah dashboard")
        try:
            yield "retry: 1000\n\n"
            sent = checked = time.monotonic()
            while not self._stopping.is_set():
                changed = await wait(stream.pending, CHECK_EVERY)
                if time.monotonic() - checked >= CHECK_EVERY:
                    checked = time.monotonic()
                    if not await _allowed(still_allowed):
                        break
                if changed:
                    for line in stream.take():
                        yield line
                elif time.monotonic() - sent < KEEP_ALIVE_EVERY:
                    continue
                else:
                    yield ": still here\n\n"
                sent = time.monotonic()
            yield "event: over\ndata: \n\n"
        finally:
            self._streams.discard(stream)

    async def _watch(self) -> None:
        outage = Outage("dashboard")
        while self._streams and not self._stopping.is_set():
            try:
                now = dict(await self._read())
            except Exception as error:
                await wait(self._stopping, max(self._every, outage.fail(error)))
                continue
            outage.heal()
            changed = {topic for topic, value in now.items() if self._last.get(topic) != value}
            self._last = now
            for stream in self._streams:
                stream.add(changed, now)
            await wait(self._stopping, self._every)


async def _allowed(still_allowed: Callable[[], Awaitable[object]]) -> bool:
    try:
        return bool(await still_allowed())
    except Exception:  # the database is away: the stream sends nothing then
        return True


class _Stream:
    """The changes that one page has not received yet; a slow page gets many at once."""

    def __init__(self) -> None:
        self.pending = asyncio.Event()
        self._changed: set[str] = set()
        self._pulse: Any = None

    def add(self, changed: set[str], now: Mapping[str, Any]) -> None:
        # Something may have changed between the page and its stream, so the first message names every topic.
        self._changed |= set(now) if self._pulse is None else changed
        self._pulse = now.get(PULSE, {})
        if self._changed:
            self.pending.set()

    def take(self) -> list[str]:
        changed, self._changed = self._changed, set()
        self.pending.clear()
        lines = []
        if PULSE in changed:
            lines.append(f"event: pulse\ndata: {msgspec.json.encode(self._pulse).decode()}\n\n")
        if topics := sorted(changed - {PULSE}):
            lines.append(f"event: changed\ndata: {' '.join(topics)}\n\n")
        return lines


PAGES = [DashboardPage("GET", "/live", "read", live)]
