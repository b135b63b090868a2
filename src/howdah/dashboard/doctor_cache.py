"""Cache of the doctor's findings: one examination at a time, shared by all requests, with a bounded wait."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import NamedTuple

from howdah.app import Howdah
from howdah.diagnose.doctor.doctor import Doctor
from howdah.diagnose.doctor.finding import Finding, Verdict

FRESH = 5.0
"""Cache lifetime of an examination, in seconds."""
WITHIN = 0.1
"""Seconds a request waits for a new examination; then it gets the last one, and the page asks again."""
ORDER = [Verdict.BAD, Verdict.WARN, Verdict.OK]


class DoctorResult(NamedTuple):
    """The latest findings."""

    findings: list[Finding]
    """The worst first."""
    age: float | None
    """Seconds since; ``None``: there was no examination yet."""
    under_way: bool
    """True if a new one is being made."""


class DoctorCache:
    """Examines when asked, but not at every request."""

    def __init__(self, app: Howdah) -> None:
        self._app = app
        self._at: float | None = None
        self._found: list[Finding] = []
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> DoctorResult:
        """Return the findings; start a new examination if the last one is too old."""
        if self._task is None and (self._at is None or time.monotonic() - self._at > FRESH):
            self._task = asyncio.create_task(self._examine(), name="howdah dashboard examination")
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=WITHIN)
            if task.done():
                self._task = None
                task.result()
        age = None if self._at is None else time.monotonic() - self._at
        return DoctorResult(self._found, age, self._task is not None)

    async def close(self) -> None:
        """Cancel a running examination."""
        if self._task is not None:
            self._task.cancel()
            with suppress(BaseException):
                await self._task

    async def _examine(self) -> None:
        tables = [table.options for table in self._app.tables.values()]
        found = await Doctor(self._app.database, tables).examine()
        self._found = sorted(found, key=lambda each: ORDER.index(each.verdict))
        self._at = time.monotonic()
