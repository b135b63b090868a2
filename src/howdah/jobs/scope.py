"""The scope of a claim: which queues it looks at, and from which arrival number.

Up to ``FEW`` queues are all looked at, and each claim starts with the next one. Of more queues only those with ready
jobs are looked at, and each claim starts after the queue that was served last; queues found empty are left out until
the queues are read again.

A claim that starts at the beginning can be expensive: it walks over jobs of kinds that are not served here, and over
dead rows that a long transaction keeps. After such a claim the following ones start above the *floor*, the newest
arrival number known before it. Jobs can appear below a floor: committed late, released, resumed. They are found by the
next claim without floors. Such claims are made once a second, and take at most a tenth of the time; one that was put
off is made up for.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from howdah.job import Job
from howdah.jobs.labels import serves

FEW = 100
"""Queues that are all looked at in every claim."""
BATCH = 1000
"""Queues in one claim statement."""
FIND = 0.05
"""Seconds between two reads of the queues with ready jobs, while busy, if there are many."""
EXPENSIVE = 2000
"""Entries of the index above which a claim from the beginning is expensive; a claim of nothing costs about as much."""
REST = 10.0
"""Times its own duration that a look is not repeated."""
SHORTEST_REST = 1.0
"""Seconds that an expensive look is not repeated, at least."""
ALL = -101
"""Below every priority: the floor holds for all of them."""


class ClaimScope:
    """Queues, watermarks and floors of one store."""

    def __init__(self, queues: Sequence[str] | None, labels: Collection[str] = ()) -> None:
        self.named = None if queues is None else list(queues)
        self._names = frozenset(queues or ())
        self.queues = list(queues or ())
        self.many = False
        self.arrival = 0
        """The newest arrival number known."""
        self.owed = False
        """True if a claim should have looked at everything, and did not."""
        self._labels = labels
        self._marks: dict[str, dict[int, int]] = {}
        self._floors: dict[str, tuple[int, int]] = {}
        """Queue to arrival number, and the priority above which it holds."""
        self._passed: list[str] = []
        """Queues that the last claim looked at to their end."""
        self._notified: set[str] = set()
        self._empty: set[str] = set()
        self._rotation = 0
        self._last = ""
        self._full_at = 0.0
        self._find_at = 0.0

    @property
    def expensive(self) -> bool:
        """True if the last look at everything was expensive."""
        return bool(self._floors)

    @property
    def owed_at(self) -> float:
        """When to look at everything, because a claim did not; infinity if no look is owed."""
        return self._full_at if self.owed else math.inf

    def set_queues(self, queues: Sequence[str], many: bool) -> None:
        """Set the queues; those whose labels the node lacks are left out."""
        self.queues = [queue for queue in queues if serves(queue, self._labels)]
        self.many = many
        if many:
            self.queues.sort()
        self._empty.clear()

    def serves(self, queue: str) -> bool:
        """Return whether jobs of a queue are claimed here."""
        return serves(queue, self._labels) if self.named is None else queue in self._names

    def notify(self, queue: str | None) -> None:
        """Note the queue of a notification."""
        if queue is not None and len(self._notified) < BATCH:
            self._notified.add(queue)

    def notified(self) -> list[str]:
        """Return and forget the queues of notifications."""
        queues, self._notified = sorted(self._notified), set()
        if not self.many:
            self.queues += [queue for queue in queues if queue not in self.queues]
        return queues

    def rotated(self) -> Iterator[list[str]]:
        """Yield the queues in the order in which they are served, so that none starves; not too many at once."""
        if not self.queues:
            return
        if self.many:
            start = bisect_right(self.queues, self._last)
        else:
            self._rotation = start = (self._rotation + 1) % len(self.queues)
        order = [queue for queue in self.queues[start:] + self.queues[:start] if queue not in self._empty]
        for first in range(0, len(order), BATCH):
            yield order[first : first + BATCH]

    def watermarks(self, queues: Sequence[str]) -> str:
        """Return the watermarks of these queues for the statement."""
        marks: dict[str, dict[Any, int]] = {queue: {**self._marks[queue]} for queue in queues if queue in self._marks}
        for queue in queues:
            if floor := self._floors.get(queue):
                marks.setdefault(queue, {}).update(floor=floor[0], above=floor[1])
        return msgspec.json.encode(marks).decode()

    def advance(self, queue: str, priority: int, rid: int) -> None:
        """Raise a watermark: jobs of the queue and priority were claimed up to this arrival number."""
        marks = self._marks.setdefault(queue, {})
        if rid > marks.get(priority, 0):
            marks[priority] = rid

    def restart(self) -> bool:
        """Begin to look at everything, unless that is expensive and was done just now; then it is owed."""
        if time.monotonic() < self._full_at:
            self.owed = True
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget what was seen: the next claim looks at everything."""
        self._marks.clear()
        self._floors.clear()
        self._empty.clear()
        self._full_at = 0.0
        self.owed = False

    def find_due(self) -> bool:
        """Return whether the queues with ready jobs should be read again before the next claim."""
        return self.many and time.monotonic() >= self._find_at

    def found(self, seconds: float) -> None:
        """The queues were read in so many seconds."""
        now = time.monotonic()
        self._find_at = now + max(FIND, REST * seconds)
        if self.expensive:
            self._full_at = max(self._full_at, now + max(SHORTEST_REST, REST * seconds))

    def examine(
        self, queues: Sequence[str], room: Mapping[str, int], limit: int, jobs: Sequence[Job], *, full: bool
    ) -> None:
        """Note what a claim has shown; ``full``: it took all it wanted, so it may have ended before the last queue."""
        served = Counter(job.queue for job in jobs)
        free = {queue: room.get(queue, limit) - served[queue] for queue in queues}
        end = len(queues)
        if served:
            last = max(place for place, queue in enumerate(queues) if queue in served)
            self._last = queues[last]
            if full or any(free[queue] <= 0 for queue in served):
                end = last
        self._passed = [queue for queue in queues[:end] if free[queue] > 0]
        if self.many:
            self._empty.update(queue for queue in self._passed if queue not in served)

    def unknown(self, queues: Sequence[str]) -> list[str]:
        """Return those of the queues that have no floor for all priorities."""
        return [queue for queue in queues if self._floors.get(queue, (0, 0))[1] != ALL]

    def raise_floors(self, lowest: Mapping[str, int], arrival: int, seconds: float) -> None:
        """The last claim was expensive: the next ones start above what had arrived before it.

        ``lowest``: the queue in which the claim ended, and the lowest priority that it reached there.
        """
        for queue, priority in lowest.items():
            if queue in self.unknown([queue]):
                self._floors[queue] = (arrival, priority)
        self._floors.update((queue, (arrival, ALL)) for queue in self._passed)
        self._full_at = time.monotonic() + max(SHORTEST_REST, REST * seconds)
