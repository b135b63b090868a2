"""Inbox: jobs that are claimed and wait for a slot, and how many of each limited queue are in hand."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set

from howdah.job import Job


class Inbox:
    """What was claimed and has not started. Most of the time it is empty."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._jobs: deque[tuple[Job, float]] = deque()
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._jobs)

    def room(self) -> dict[str, int]:
        """How many more jobs of each limited queue may be claimed."""
        return {queue: max(0, limit - self._held[queue]) for queue, limit in self._limits.items()}

    def put(self, jobs: Sequence[Job]) -> None:
        """These were claimed just now."""
        now = time.monotonic()
        if self._limits:
            self._held.update(job.queue for job in jobs)
        self._jobs.extend((job, now) for job in jobs)

    @property
    def first(self) -> Job:
        """The next job to start."""
        return self._jobs[0][0]

    def take(self) -> Job:
        """The next job to start; it stays counted against its queue until :meth:`over`."""
        return self._jobs.popleft()[0]

    def over(self, job: Job) -> None:
        """This job no longer counts against its queue."""
        if self._limits:
            self._held[job.queue] -= 1

    def drop_older(self, seconds: float) -> list[Job]:
        """Take out what has waited longer than this."""
        oldest = time.monotonic() - seconds
        count = 0
        for _, since in self._jobs:
            if since >= oldest:
                break
            count += 1
        return self._out([self._jobs.popleft()[0] for _ in range(count)])

    def drop_all(self) -> list[Job]:
        """Take out everything."""
        return self._drop([job for job, _ in self._jobs])

    def drop_leases(self, tokens: Set[int]) -> list[Job]:
        """Take out what is held under these leases."""
        return self._drop([job for job, _ in self._jobs if job.token in tokens])

    def drop_ids(self, ids: Set[int | str]) -> list[Job]:
        """Take out these jobs."""
        return self._drop([job for job, _ in self._jobs if job.id in ids])

    def drop_keys(self, keys: Set[tuple[int, int | str]]) -> list[Job]:
        """Take out these jobs of these leases."""
        return self._drop([job for job, _ in self._jobs if (job.token, job.id) in keys])

    def _drop(self, jobs: list[Job]) -> list[Job]:
        if jobs:
            gone = {(job.token, job.id) for job in jobs}
            self._jobs = deque(item for item in self._jobs if (item[0].token, item[0].id) not in gone)
        return self._out(jobs)

    def _out(self, jobs: list[Job]) -> list[Job]:
        for job in jobs:
            self.over(job)
        return jobs
