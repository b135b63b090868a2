"""Hands the prefetched jobs of a blocked event loop to the heartbeat thread, so that other nodes can run them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from howdah import telemetry
from howdah.job import Job
from howdah.outcome import Ack
from howdah.worker.ack import Acker
from howdah.worker.capacity import Prefetched, PrefetchSize


class Overdue:
    """The jobs of one worker that should have started or been released long ago.

    The heartbeat thread takes them and releases them. The event loop, when it runs again, neither starts nor releases
    what was taken: it only learns what became of it.
    """

    def __init__(self, prefetched: Prefetched, size: PrefetchSize, acker: Acker, freed: asyncio.Event) -> None:
        self._prefetched = prefetched
        self._size = size
        self._acker = acker
        self._freed = freed
        self._popped = 0
        """Calls of :meth:`pop` with jobs; written by the heartbeat thread only."""
        self._reported = 0
        """Calls of :meth:`released`; written by the event loop only."""

    @property
    def pending(self) -> bool:
        """True while jobs are in the hands of the heartbeat thread."""
        return self._popped != self._reported

    def pop(self) -> list[Job]:
        """Take the overdue jobs; called by the heartbeat thread, which then reports them with :meth:`released`."""
        self._popped += 1  # before a job is taken: a worker that drains must see the job or this
        jobs = self._prefetched.pop_overdue()
        if not jobs:
            self._popped -= 1
        return jobs

    def released(self, acks: Sequence[Ack]) -> None:
        """Account for the jobs of one :meth:`pop`; those that are not recorded as released are released now."""
        self._reported += 1
        self._prefetched.finished([ack.job for ack in acks])
        self._size.reset()
        self._acker.put(acks)
        self._freed.set()
        telemetry.emit("job.release", jobs=len(acks))
