"""Capacity of a worker: its slots, the jobs it has prefetched, and how many jobs to prefetch."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import repeat

from howdah.handler import Handler
from howdah.job import Job

SHORT_JOB = 20_000
"""Microseconds: while jobs take longer than this on average, none are prefetched."""
PREFETCH_SECONDS = 0.05
"""Seconds of work to prefetch."""
MAX_PREFETCH = 1000
"""Jobs to prefetch at most."""
MAX_PREFETCH_AGE = 0.25
"""Seconds after which prefetched jobs that have not started are released."""


OVERDUE = 2.0
"""Seconds after which the heartbeat thread releases them: the event loop is blocked."""


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

    The size follows from the jobs that finished lately. Nothing is prefetched before short jobs have finished. Claims
    are enlarged to full batches as far as the last claim consisted of jobs of batch handlers.
    """

    def __init__(self, batches: Mapping[str, int]) -> None:
        self._batches = batches
        """The size of a batch, by kind."""
        self._batch = 0
        """The largest batch of which the last claim had jobs."""
        self._others = 1.0
        """Share of jobs without a batch in the last claim."""
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

    def claimed(self, jobs: Sequence[Job]) -> None:
        """Note the jobs of a claim."""
        if self._batches:
            sizes = [self._batches[job.kind] for job in jobs if job.kind in self._batches]
            self._batch, self._others = max(sizes, default=0), 1.0 - len(sizes) / len(jobs)

    def enlarge(self, limit: int) -> int:
        """Return how many jobs to claim instead of ``limit``, so that the batches among them are full.

        Not more than ``limit`` of them are expected to be jobs without a batch.
        """
        if not self._batch or limit <= 0:
            return limit
        full = -(-limit // self._batch) * self._batch
        return full if full * self._others <= limit else int(limit / self._others)

    def reset(self) -> None:
        """Prefetch nothing until short jobs have finished again: prefetched jobs had to be released."""
        self._since, self._jobs, self._busy, self._size = time.monotonic(), 0, 0, 0


class Gathering:
    """The jobs that wait for a full batch (``within``), by kind."""

    def __init__(self, handlers: Iterable[Handler], ready: Callable[[list[Job]], None]) -> None:
        self._handlers = {handler.kind: handler for handler in handlers}
        self._ready = ready
        """Called with the jobs of a kind that have waited long enough."""
        self._jobs: dict[str, list[Job]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return sum(map(len, list(self._jobs.values())))  # a copy: the heartbeat thread calls this

    def put(self, jobs: Sequence[Job]) -> list[Job]:
        """Keep the jobs that have to wait for others; return those that can start now."""
        start: list[Job] = []
        for job in jobs:
            handler = self._handlers.get(job.kind)
            if handler is None:
                start.append(job)
                continue
            waiting = self._jobs.setdefault(job.kind, [])
            waiting.append(job)
            if len(waiting) >= handler.batch:
                start += self._take(job.kind)
            elif len(waiting) == 1:
                self._timers[job.kind] = self._loop.call_later(handler.within, self._give, job.kind)
        return start

    def pop(self, chosen: Callable[[Job], bool]) -> list[Job]:
        """Remove the chosen jobs."""
        removed = [job for jobs in self._jobs.values() for job in jobs if chosen(job)]
        for kind, jobs in list(self._jobs.items()) if removed else ():
            self._jobs[kind] = [job for job in jobs if not chosen(job)]
            if not self._jobs[kind]:
                self._take(kind)
        return removed

    def _take(self, kind: str) -> list[Job]:
        self._timers.pop(kind).cancel()
        return self._jobs.pop(kind)

    def _give(self, kind: str) -> None:
        self._ready(self._take(kind))


class Prefetched:
    """The jobs that are claimed and wait for a slot, and the number of held jobs of each limited queue.

    Most of the time no job waits here. The heartbeat thread may take jobs from the end at any moment. Each operation on
    the deque is atomic, so a job is taken only once; between two of them the deque may become shorter.
    """

    def __init__(self, limits: Mapping[str, int], gathered: Sequence[Handler] = ()) -> None:
        self._gathering = Gathering(gathered, self._gathered) if gathered else None
        """The jobs that wait for a full batch; not among :attr:`jobs`."""
        self.ready: Callable[[], None] = lambda: None
        """Called when jobs have waited long enough for a full batch."""
        self.limits = limits
        """The maximum number of claimed and running jobs, by queue."""
        self.jobs: deque[tuple[Job, float]] = deque()
        """Each with the time of its claim."""
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.jobs)

    def gathering(self) -> int:
        """Return the number of jobs that wait for a full batch."""
        return 0 if self._gathering is None else len(self._gathering)

    def room(self) -> dict[str, int]:
        """Return how many more jobs of each limited queue may be claimed."""
        return {queue: max(0, limit - self._held[queue]) for queue, limit in self.limits.items()}

    def put(self, jobs: Sequence[Job]) -> None:
        """Add jobs that have just been claimed."""
        now = time.monotonic()
        if self.limits:
            self._held.update(job.queue for job in jobs)
        self.jobs.extend(zip(self._gathering.put(jobs) if self._gathering is not None else jobs, repeat(now)))

    @property
    def first(self) -> Job:
        """The next job to start."""
        return self.jobs[0][0]

    def pop(self) -> Job:
        """Remove the next job to start; it counts against its queue's limit until :meth:`finished`."""
        return self.jobs.popleft()[0]

    def pop_kind(self, kind: str, most: int) -> list[Job]:
        """Remove up to this many jobs of one kind, the next to start first; they count like that of :meth:`pop`."""
        found: list[Job] = []
        others: list[tuple[Job, float]] = []
        with suppress(IndexError):
            while len(found) < most:
                item = self.jobs.popleft()
                if item[0].kind == kind:
                    found.append(item[0])
                else:
                    others.append(item)
        self.jobs.extendleft(reversed(others))
        return found

    def finished(self, jobs: Iterable[Job]) -> None:
        """Stop counting these jobs against the limits of their queues."""
        if self.limits:
            self._held.subtract([job.queue for job in jobs])

    def pop_older_than(self, seconds: float) -> list[Job]:
        """Remove the jobs that have waited longer than this."""
        oldest = time.monotonic() - seconds
        gone: list[Job] = []
        with suppress(IndexError):
            while self.jobs[0][1] < oldest:
                gone.append(self.jobs.popleft()[0])
        return self._uncounted(gone)

    def pop_overdue(self) -> list[Job]:
        """Remove the jobs that should have been released long ago; called by the heartbeat thread.

        They count against the limits of their queues until :meth:`finished`.
        """
        oldest = time.monotonic() - OVERDUE
        gone: list[Job] = []
        with suppress(IndexError):
            while self.jobs[-1][1] < oldest:
                gone.append(self.jobs.pop()[0])
        return gone

    def pop_all(self) -> list[Job]:
        """Remove all jobs."""
        return self._remove(lambda job: True)

    def pop_leases(self, tokens: Set[int]) -> list[Job]:
        """Remove the jobs held under these leases."""
        return self._remove(lambda job: job.token in tokens)

    def pop_ids(self, ids: Set[int | str]) -> list[Job]:
        """Remove the jobs with these ids."""
        return self._remove(lambda job: job.id in ids)

    def pop_keys(self, keys: Set[tuple[int, int | str]]) -> list[Job]:
        """Remove the jobs with these (token, id) pairs."""
        return self._remove(lambda job: (job.token, job.id) in keys)

    def _remove(self, chosen: Callable[[Job], bool]) -> list[Job]:
        removed: list[Job] = []
        kept: list[tuple[Job, float]] = []
        with suppress(IndexError):
            while True:
                item = self.jobs.popleft()
                if chosen(item[0]):
                    removed.append(item[0])
                else:
                    kept.append(item)
        self.jobs.extendleft(reversed(kept))
        if self._gathering is not None:
            removed += self._gathering.pop(chosen)
        return self._uncounted(removed)

    def _gathered(self, jobs: list[Job]) -> None:
        self.jobs.extend(zip(jobs, repeat(time.monotonic())))
        self.ready()

    def _uncounted(self, jobs: list[Job]) -> list[Job]:
        self.finished(jobs)
        return jobs
