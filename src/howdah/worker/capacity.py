"""Capacity of a worker: its slots, the jobs it has prefetched, and how many jobs to prefetch."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import repeat

from howdah.job import Job

SHORT_JOB = 20_000
"""Microseconds: while jobs take longer than this on average, none are prefetched."""
PREFETCH_SECONDS = 0.05
"""Seconds of work to prefetch."""
MAX_PREFETCH = 1000
"""Jobs to prefetch at most."""
MAX_PREFETCH_AGE = 0.25
"""Seconds after which prefetched jobs that have not started are released."""


class Slots:
    """The number of jobs that may run at once; of one worker, or shared by several."""

    __slots__ = ("taken", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0

    @property
    def free(self) -> int:
        return self.total - self.taken

    def cost(self, slots: int) -> int:
        """Return the slots that a job takes: at most all of them, so that an expensive job can run at all."""
        return min(slots, self.total)


class PrefetchSize:
    """Computes how many jobs to claim beyond the free slots, so that short jobs never wait for a round trip.

    The size follows from the jobs that finished lately. Nothing is prefetched before short jobs have finished.
    """

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._jobs = 0
        self._busy = 0
        self._size = 0

    def finished(self, jobs: int, took: int) -> None:
        """Note that this many jobs took this many microseconds in all."""
        self._jobs += jobs
        self._busy += took

    def jobs(self) -> int:
        """Return how many jobs to hold beyond the free slots."""
        now = time.monotonic()
        passed = now - self._since
        if self._jobs >= 20 or passed > 1.0:
            short = self._jobs > 0 and self._busy < SHORT_JOB * self._jobs
            self._size = min(MAX_PREFETCH, int(self._jobs / max(passed, 0.0005) * PREFETCH_SECONDS)) if short else 0
            self._since, self._jobs, self._busy = now, 0, 0
        return self._size

    def reset(self) -> None:
        """Prefetch nothing until short jobs have finished again: prefetched jobs had to be released."""
        self._since, self._jobs, self._busy, self._size = time.monotonic(), 0, 0, 0


class Prefetched:
    """The jobs that are claimed and wait for a slot, and the number of held jobs of each limited queue.

    Most of the time no job waits here.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        """The maximum number of claimed and running jobs, by queue."""
        self.jobs: deque[tuple[Job, float]] = deque()
        """Each with the time of its claim."""
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.jobs)

    def room(self) -> dict[str, int]:
        """Return how many more jobs of each limited queue may be claimed."""
        return {queue: max(0, limit - self._held[queue]) for queue, limit in self.limits.items()}

    def put(self, jobs: Sequence[Job]) -> None:
        """Add jobs that have just been claimed."""
        now = time.monotonic()
        if self.limits:
            self._held.update(job.queue for job in jobs)
        self.jobs.extend(zip(jobs, repeat(now)))

    @property
    def first(self) -> Job:
        """The next job to start."""
        return self.jobs[0][0]

    def pop(self) -> Job:
        """Remove the next job to start; it counts against its queue's limit until :meth:`finished`."""
        return self.jobs.popleft()[0]

    def finished(self, jobs: Iterable[Job]) -> None:
        """Stop counting these jobs against the limits of their queues."""
        if self.limits:
            self._held.subtract([job.queue for job in jobs])

    def pop_older_than(self, seconds: float) -> list[Job]:
        """Remove the jobs that have waited longer than this."""
        oldest = time.monotonic() - seconds
        count = 0
        for _, since in self.jobs:
            if since >= oldest:
                break
            count += 1
        return self._uncounted([self.jobs.popleft()[0] for _ in range(count)])

    def pop_all(self) -> list[Job]:
        """Remove all jobs."""
        return self._remove([job for job, _ in self.jobs])

    def pop_leases(self, tokens: Set[int]) -> list[Job]:
        """Remove the jobs held under these leases."""
        return self._remove([job for job, _ in self.jobs if job.token in tokens])

    def pop_ids(self, ids: Set[int | str]) -> list[Job]:
        """Remove the jobs with these ids."""
        return self._remove([job for job, _ in self.jobs if job.id in ids])

    def pop_keys(self, keys: Set[tuple[int, int | str]]) -> list[Job]:
        """Remove the jobs with these (token, id) pairs."""
        return self._remove([job for job, _ in self.jobs if (job.token, job.id) in keys])

    def _remove(self, jobs: list[Job]) -> list[Job]:
        if jobs:
            gone = {(job.token, job.id) for job in jobs}
            self.jobs = deque(item for item in self.jobs if (item[0].token, item[0].id) not in gone)
        return self._uncounted(jobs)

    def _uncounted(self, jobs: list[Job]) -> list[Job]:
        self.finished(jobs)
        return jobs
