"""Examination: what the doctor found, one at a time and shared by all who ask."""

from __future__ import annotations

import asyncio
import time

from howdah.app import Howdah
from howdah.upkeep.doctor import Doctor
from howdah.upkeep.finding import Finding, Verdict

FRESH = 5.0
"""Seconds an examination is believed, however many look."""
ORDER = [Verdict.BAD, Verdict.WARN, Verdict.OK]


class Examination:
    """Examines when asked, but not at every request."""

    def __init__(self, app: Howdah) -> None:
        self._app = app
        self._turn = asyncio.Lock()
        self._at = -FRESH
        self._found: list[Finding] = []

    async def findings(self) -> list[Finding]:
        """The worst first."""
        async with self._turn:
            if time.monotonic() - self._at > FRESH:
                tables = [table.options for table in self._app.tables.values()]
                found = await Doctor(self._app.database, tables).examine()
                self._found = sorted(found, key=lambda each: ORDER.index(each.verdict))
                self._at = time.monotonic()
            return self._found
