"""The hook ``before_claim``, and the rows that its answers admitted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from howdah.loops import wait_any
from howdah.table.budget import Key
from howdah.table.statement import Where

Answer = bool | Where


class ClaimGate(Protocol):
    """The hook of a user that decides, before every claim, whether to claim and which rows."""

    async def may_claim(self) -> Answer: ...

    @property
    def one_by_one(self) -> bool:
        """True if an answer admits one row: the hooks of the rows change the next answer."""
        ...


class ClaimHook:
    """Runs ``before_claim``, one call at a time. A result after :meth:`interrupt` goes to the next caller."""

    def __init__(self, ask: Callable[[], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._interrupted = asyncio.Event()
        self._answer: Answer = False

    def interrupt(self) -> None:
        """Make :meth:`ask` return now: the worker stops, or there is something new to claim."""
        self._interrupted.set()

    async def ask(self) -> Answer:
        """Return the hook's result; false when there is none yet."""
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


class Admitted:
    """Rows that an answer of ``before_claim`` admitted and whose ``before_execute`` has not run yet.

    A handler that keeps account in its hooks subtracts a row in ``before_execute``. Until then the next answer of
    ``before_claim`` would admit rows for what is already spent.
    """

    def __init__(self, resume: Callable[[], None]) -> None:
        self._rows: set[Key] = set()
        self._resume = resume

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Collection[Key]) -> None:
        """Wait for these rows to begin."""
        self._rows.update(rows)

    def remove(self, row: Key) -> None:
        """Stop waiting for a row: it has begun or ended."""
        if row in self._rows:
            self._rows.remove(row)
            if not self._rows:
                self._resume()

    def remove_leases(self, tokens: Collection[int]) -> None:
        """Stop waiting for all rows of these leases."""
        for row in [row for row in self._rows if row[0] in tokens]:
            self.remove(row)
