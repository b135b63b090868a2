"""Question: asks the hook before a claim, and does not wait for the answer when the worker has to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from howdah.service import wait_any
from howdah.table.where import Where

Answer = bool | Where


class Question:
    """Asks one question at a time. An answer that comes after :meth:`interrupt` is for whoever asks next."""

    def __init__(self, ask: Callable[[], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._interrupted = asyncio.Event()
        self._answer: Answer = False

    def interrupt(self) -> None:
        """Have :meth:`ask` return now: the worker stops, or there is something new to claim."""
        self._interrupted.set()

    async def ask(self) -> Answer:
        """The answer; false when there is none yet."""
        self._interrupted.clear()
        if self._asking is None:
            self._answered.clear()
            self._asking = asyncio.create_task(self._find_out(), name="howdah before_claim")
        if not self._answered.is_set():
            await wait_any(None, self._answered, self._interrupted)
        if not self._answered.is_set():
            return False
        self._asking = None
        return self._answer

    async def _find_out(self) -> None:
        self._answer = False
        try:
            self._answer = await self._ask()
        finally:
            self._answered.set()
