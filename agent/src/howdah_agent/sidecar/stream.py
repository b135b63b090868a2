"""Streamed response: JSON lines while the work runs; the work stops when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

STILL_HERE = 10.0
"""Seconds without output after which an empty line is sent as a keep-alive."""
MOST_WAITING = 10_000
"""Lines buffered for a slow reader; further lines are counted and left out."""

Say = Callable[[Any], None]


class Stream(Response):
    """Stream the objects that ``work(say)`` passes to ``say``, then its result. A disconnect stops the work."""

    media_type = "application/x-ndjson"

    def __init__(self, work: Callable[[Say], Awaitable[Any]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._work = work
        self._lines: asyncio.Queue[Any] = asyncio.Queue()
        self._left_out = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        working = asyncio.create_task(self._run())
        leaving = asyncio.create_task(_left(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (line := await self._next(leaving)) is not None:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (ClientDisconnect, OSError):
            pass  # the client has disconnected
        finally:
            leaving.cancel()
            await stop(working)

    async def _run(self) -> None:
        try:
            self._lines.put_nowait(await self._work(self._say))
        except BaseException as error:
            self._lines.put_nowait({"success": False, "error": str(error) or "stopped", "error_code": "STOPPED"})
            raise
        finally:
            self._lines.put_nowait(None)

    def _say(self, line: Any) -> None:
        if self._lines.qsize() < MOST_WAITING:
            if self._left_out:
                self._lines.put_nowait({"stream": "log", "line": f"… {self._left_out} lines left out …"})
                self._left_out = 0
            self._lines.put_nowait(line)
        else:
            self._left_out += 1

    async def _next(self, leaving: asyncio.Task[None]) -> bytes | None:
        """Return the next lines; an empty one after a while without output."""
        coming = asyncio.create_task(self._lines.get())
        try:
            await asyncio.wait({coming, leaving}, timeout=STILL_HERE, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                raise ClientDisconnect
            if not coming.done():
                return b"\n"
            lines = [coming.result()]
        finally:
            coming.cancel()
        while not self._lines.empty() and lines[-1] is not None and len(lines) < 100:
            lines.append(self._lines.get_nowait())
        if lines == [None]:
            return None
        if lines[-1] is None:
            self._lines.put_nowait(lines.pop())
        return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


async def while_connected(receive: Receive, answer: Awaitable[Any]) -> Any:
    """Wait for the result; cancels the work if the client disconnects."""
    working = asyncio.ensure_future(answer)
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        leaving.cancel()
        await stop(working)


async def stop(working: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it has cleaned up, even if cancelled again meanwhile."""
    working.cancel()
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            pass
    if not working.cancelled():
        working.exception()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
