"""Examination: what the doctor found, one at a time and shared by all who ask. Nobody waits long for it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import NamedTuple

from howdah.app import Howdah
from howdah.upkeep.doctor import Doctor
from howdah.upkeep.finding import Finding, Verdict

FRESH = 5.0
"""Seconds an examination is believed, however many look."""
WITHIN = 0.1
"""Seconds whoever asks waits for a new one; then they see the last one, and ask again."""
ORDER = [Verdict.BAD, Verdict.WARN, Verdict.OK]


class Examined(NamedTuple):
    """What is known by now."""

    findings: list[Finding]
    """The worst first."""
    age: float | None
    """Seconds since; ``None``: there was no examination yet."""
    under_way: bool
    """Whether a new one is being made."""


class Examination:
    """Examines when asked, but not at every request."""

    def __init__(self, app: Howdah) -> None:
        self._app = app
        self._at: float | None = None
        self._found: list[Finding] = []
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> Examined:
        """What was found; a new examination begins if the last one is too old."""
        if self._task is None and (self._at is None or time.monotonic() - self._at > FRESH):
            self._task = asyncio.create_task(self._examine(), name="howdah dashboard examination")
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=WITHIN)
            if task.done():
                self._task = None
                task.result()
        age = None if self._at is None else time.monotonic() - self._at
        return Examined(self._found, age, self._task is not None)

    async def close(self) -> None:
        """Let go of one that is under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(BaseException):
                await self._task

    async def _examine(self) -> None:
        tables = [table.options for table in self._app.tables.values()]
        found = await Doctor(self._app.database, tables).examine()
        self._found = sorted(found, key=lambda each: ORDER.index(each.verdict))
        self._at = time.monotonic()
