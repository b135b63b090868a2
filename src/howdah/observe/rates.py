"""Rates, computed from totals that grow every few seconds.

Every node adds what it finished to the minute's totals, each few seconds. What is seen to be added therefore happened
over the seconds before, and what happens now is not known yet: it is shown so much later, and smoothly.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

ADDED_EVERY = 5.0
"""Seconds between two additions by one node."""
BARS = 12
RECENT = 10.0
"""Seconds over which a rate is averaged."""
HORIZON = ADDED_EVERY * (BARS + 1)
MINUTE = timedelta(minutes=1)
WHAT = ("done", "failed", "retried")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A rate and its trend."""

    rate: float = 0.0
    """A second, lately."""
    trend: Sequence[float] = ()
    """A second, in steps of five seconds over the last minute, oldest first; shorter until so much has been seen."""


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that finished in one minute."""

    at: datetime
    done: int = 0
    failed: int = 0
    retried: int = 0


class Finished(NamedTuple):
    """Jobs that finished in one minute in one queue."""

    at: datetime
    queue: str
    counts: Sequence[int]
    """Done, failed, retried."""


class RateStep(NamedTuple):
    """An increase of the totals over an interval."""

    begin: float
    end: float
    counts: Sequence[int]

    def within(self, what: int, begin: float, end: float) -> float:
        """Return the part of it between two times."""
        shared = min(end, self.end) - max(begin, self.begin)
        return self.counts[what] * shared / (self.end - self.begin) if shared > 0 else 0.0


class RateTracker:
    """Rates of the last minute, by queue, from totals that are read again and again."""

    def __init__(self) -> None:
        self._last: dict[tuple[datetime, str], Finished] = {}
        self._steps: defaultdict[str, deque[RateStep]] = defaultdict(deque)
        self._means: dict[str, list[float]] = {}
        self._began: float | None = None
        self._at = datetime.min.replace(tzinfo=UTC)
        self._now = 0.0

    @property
    def queues(self) -> set[str]:
        """Return the queues in which jobs finished within the last hour."""
        return {finished.queue for finished in self._last.values()}

    def add(self, at: datetime, hour: Iterable[Finished]) -> None:
        """Take note of the totals of the last hour, as they are at this moment of the server's clock."""
        now, seen = at.timestamp(), {(each.at, each.queue): each for each in hour}
        if self._began is None:
            self._began = now
        elif now > self._now:
            begin = self._now - ADDED_EVERY
            for queue, counts in self._added(seen).items():
                if any(counts):
                    self._steps[queue].append(RateStep(begin, now, counts))
        self._last, self._at, self._now = seen, at, now
        self._means = self._mean(at)
        for steps in self._steps.values():
            while steps and steps[0].end < now - HORIZON:
                steps.popleft()

    def of(self, queue: str) -> dict[str, Rates]:
        """Return the rates at which jobs of a queue are done, failed and retried."""
        return {
            name: Rates(rate=self._rate(queue, what), trend=self._trend(queue, what)) for what, name in enumerate(WHAT)
        }

    def minutes(self, count: int) -> list[Minute]:
        """Return the jobs finished in each of the last minutes, in all queues."""
        if self._began is None:
            return []
        this = self._at.replace(second=0, microsecond=0)
        totals = {this - MINUTE * ago: [0, 0, 0] for ago in range(count - 1, -1, -1)}
        for each in self._last.values():
            for what, jobs in enumerate(each.counts if each.at in totals else ()):
                totals[each.at][what] += jobs
        return [
            Minute(at=at, done=done, failed=failed, retried=retried) for at, (done, failed, retried) in totals.items()
        ]

    def _added(self, seen: dict[tuple[datetime, str], Finished]) -> dict[str, list[int]]:
        added: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for key, each in seen.items():
            before = self._last[key].counts if key in self._last else (0, 0, 0)
            for what, (jobs, had) in enumerate(zip(each.counts, before, strict=True)):
                added[each.queue][what] += max(0, jobs - had)
        return added

    def _mean(self, at: datetime) -> dict[str, list[float]]:
        """The mean by queue since the minute before this one began, while too little was seen for a closer one."""
        this = at.replace(second=0, microsecond=0)
        seconds = (at - this + MINUTE).total_seconds()
        means: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for each in self._last.values():
            for what, jobs in enumerate(each.counts if each.at >= this - MINUTE else ()):
                means[each.queue][what] += jobs / seconds
        return means

    def _rate(self, queue: str, what: int) -> float:
        known = self._now - ADDED_EVERY
        if self._began is None or self._began > known - RECENT:
            return self._means[queue][what] if queue in self._means else 0.0
        steps = self._steps.get(queue, ())
        return sum(step.within(what, known - RECENT, known) for step in steps) / RECENT

    def _trend(self, queue: str, what: int) -> list[float]:
        known, steps = self._now - ADDED_EVERY, self._steps.get(queue, ())
        starts = (known - ADDED_EVERY * bar for bar in range(BARS, 0, -1))
        return [
            sum(step.within(what, start, start + ADDED_EVERY) for step in steps) / ADDED_EVERY
            for start in starts
            if self._began is not None and start >= self._began - ADDED_EVERY
        ]


def sum_rates(several: Sequence[Rates]) -> Rates:
    """Return the sum of several rates.

    >>> sum_rates([Rates(rate=1, trend=[0, 2]), Rates(rate=2, trend=[1, 1])])
    Rates(rate=3, trend=[1, 3])
    """
    return Rates(
        rate=sum(each.rate for each in several),
        trend=[sum(step) for step in zip(*(each.trend for each in several), strict=True)],
    )
