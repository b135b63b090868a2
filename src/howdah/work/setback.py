"""Setbacks: transactions that broke off for no fault of their handlers, and the delay before their next attempt.

The server went away, has no room left, or takes no writes. No attempt is charged for that, so nothing would end a job
that meets it every time; the delay grows instead.
"""

from __future__ import annotations

import random
from typing import Any

from howdah.job import Job
from howdah.service import Outage

FIRST = 1.0
"""Seconds before the second try."""
LONGEST = 300.0
"""Seconds between two tries at most."""
MOST_JOBS = 1000
"""Jobs whose setbacks are counted; beyond, the one counted first is forgotten."""


class Setbacks:
    """Counts the setbacks of each job since its last real outcome on this node."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self._outage = Outage("transaction")

    def delay(self, job: Job, error: BaseException) -> float:
        """Note a setback; returns the seconds before the next try."""
        self._outage.fail(error)
        count = self._counts.pop(job.id, 0) + 1
        self._counts[job.id] = count
        if len(self._counts) > MOST_JOBS:
            del self._counts[next(iter(self._counts))]
        return float(min(LONGEST, FIRST * 2 ** min(count - 1, 20))) * random.uniform(0.5, 1.0)  # noqa: S311

    def over(self, job: Job) -> None:
        """Note that a transaction of this job was carried out."""
        self._outage.heal()
        if self._counts:
            self._counts.pop(job.id, None)
