"""Health: the findings of `howdah doctor`, the worst first, each with its fix."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from starlette.responses import Response

from howdah.app import Howdah
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.finding import Finding, Verdict
from howdah.postgres.database import Database

CACHE_TTL = 5.0
"""Cache lifetime of an examination, in seconds."""
REQUEST_WAIT = 0.1
"""Seconds a request waits for a new examination; then it gets the last one, and the page asks again."""
ORDER = [Verdict.BAD, Verdict.WARN, Verdict.OK]


async def health(visit: DashboardRequest) -> Response:
    """Every finding; at first, and while a new examination is made, the page fetches itself."""
    cache: DoctorCache = visit.request.state.dashboard.doctor
    seen = await cache.findings()
    counted = Counter(each.verdict for each in seen.findings)
    return visit.page("health.html", seen=seen, counts={each.value: counted[each] for each in Verdict})


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

    def __init__(self, app: Howdah, database: Database) -> None:
        self._app = app
        self._database = database
        self._at: float | None = None
        self._findings: list[Finding] = []
        self._task: asyncio.Task[None] | None = None

    async def findings(self) -> DoctorResult:
        """Return the findings; start a new examination if the last one is too old."""
        if self._task is None and (self._at is None or time.monotonic() - self._at > CACHE_TTL):
            self._task = asyncio.create_task(self._examine(), name="howdah dashboard examination")
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=REQUEST_WAIT)
            if task.done():
                self._task = None
                task.result()
        age = None if self._at is None else time.monotonic() - self._at
        return DoctorResult(self._findings, age, self._task is not None)

    async def close(self) -> None:
        """Cancel a running examination."""
        if self._task is not None:
            self._task.cancel()
            with suppress(BaseException):
                await self._task

    async def _examine(self) -> None:
        tables = [table.options for table in self._app.tables.values()]
        found = await Doctor(self._database, tables).examine()
        self._findings = sorted(found, key=lambda each: ORDER.index(each.verdict))
        self._at = time.monotonic()


PAGES = [DashboardPage("GET", "/health", "read", health)]
