"""Inbox: jobs that are claimed and wait for a slot, and how many of each limited queue are in hand."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import repeat

from howdah.job import Job


class Inbox:
    """What was claimed and has not started. Most of the time it is empty."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        """The most of a queue that may be in hand."""
        self.jobs: deque[tuple[Job, float]] = deque()
        """Each with the moment it was claimed."""
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.jobs)

    def room(self) -> dict[str, int]:
        """How many more jobs of each limited queue may be claimed."""
        return {queue: max(0, limit - self._held[queue]) for queue, limit in self.limits.items()}

    def put(self, jobs: Sequence[Job]) -> None:
        """These were claimed just now."""
        now = time.monotonic()
        if self.limits:
            self._held.update(job.queue for job in jobs)
        self.jobs.extend(zip(jobs, repeat(now)))

    @property
    def first(self) -> Job:
        """The next job to start."""
        return self.jobs[0][0]

    def take(self) -> Job:
        """The next job to start; it stays counted against its queue until :meth:`over`."""
        return self.jobs.popleft()[0]

    def over(self, jobs: Iterable[Job]) -> None:
        """These jobs no longer count against their queues."""
        if self.limits:
            self._held.subtract([job.queue for job in jobs])

    def drop_older(self, seconds: float) -> list[Job]:
        """Take out what has waited longer than this."""
        oldest = time.monotonic() - seconds
        count = 0
        for _, since in self.jobs:
            if since >= oldest:
                break
            count += 1
        return self._out([self.jobs.popleft()[0] for _ in range(count)])

    def drop_all(self) -> list[Job]:
        """Take out everything."""
        return self._drop([job for job, _ in self.jobs])

    def drop_leases(self, tokens: Set[int]) -> list[Job]:
        """Take out what is held under these leases."""
        return self._drop([job for job, _ in self.jobs if job.token in tokens])

    def drop_ids(self, ids: Set[int | str]) -> list[Job]:
        """Take out these jobs."""
        return self._drop([job for job, _ in self.jobs if job.id in ids])

    def drop_keys(self, keys: Set[tuple[int, int | str]]) -> list[Job]:
        """Take out these jobs of these leases."""
        return self._drop([job for job, _ in self.jobs if (job.token, job.id) in keys])

    def _drop(self, jobs: list[Job]) -> list[Job]:
        if jobs:
            gone = {(job.token, job.id) for job in jobs}
            self.jobs = deque(item for item in self.jobs if (item[0].token, item[0].id) not in gone)
        return self._out(jobs)

    def _out(self, jobs: list[Job]) -> list[Job]:
        self.over(jobs)
        return jobs
