"""The worker: claims jobs from any store, runs their handlers and acknowledges the outcomes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from operator import attrgetter

from howdah import telemetry
from howdah.handler import Handler
from howdah.job import Job
from howdah.loops import Outage, end_within, wait, wait_any
from howdah.outcome import Ack, Outcome
from howdah.store import Store
from howdah.worker.ack import Acker, Lease, report_lost
from howdah.worker.attempt import Attempt, CancelReason
from howdah.worker.attempts import Attempts, Key
from howdah.worker.capacity import MAX_PREFETCH_AGE, Prefetched, PrefetchSize, Slots
from howdah.worker.drain import DrainGroup
from howdah.worker.job_log import JobLogBuffer, sink
from howdah.worker.options import WorkerOptions
from howdah.worker.overdue import Overdue

log = logging.getLogger("howdah")

CLAIM_TIMEOUT = 3.0
"""Seconds a stopped worker waits for the reply to its last claim."""
FLUSH_TIMEOUT = 3.0
"""Seconds without a recorded outcome after which a stopped worker gives up on the remaining ones."""
RELEASE_TIMEOUT = 2.0
"""Seconds a stopped worker has to release its leases."""
LOOPS_TIMEOUT = 1.0
"""Seconds the loops of a stopped worker have to end."""

NOT_RELEASED = "could not release %d leases (%s); their jobs run again when they expire"
_took = attrgetter("took")


class Worker:
    """Claims jobs while it has free slots, runs their handlers and acknowledges the outcomes."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        options: WorkerOptions,
        slots: Slots | None = None,
        drain_group: DrainGroup | None = None,
    ) -> None:
        self._slots = slots or Slots(options.slots)
        self._drain_group = drain_group or DrainGroup(1)
        self._store, self._options = store, options
        self._prefetch_size = PrefetchSize({kind: each.batch for kind, each in handlers.items() if each.batch})
        gathered = () if options.drain else [handler for handler in handlers.values() if handler.within]
        self._prefetched = Prefetched(options.limited, gathered)
        self.gathering = self._prefetched.gathering
        self._attempts = Attempts(
            store,
            handlers,
            self._prefetched,
            self._slots,
            threads=options.slots,
            largest_result=options.largest_result,
            finished=self._attempts_finished,
            slots_freed=self._slots_freed,
        )
        self._prefetched.ready = self._attempts.fill
        self._leases: dict[int, Lease] = {}
        self._job_log = JobLogBuffer(store.job_log) if store.job_log else None
        self._acker = Acker(store, self._leases, self._job_log)
        self._freed, self._stop, self._stop_now = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.overdue = Overdue(self._prefetched, self._prefetch_size, self._acker, self._freed)
        self.incomplete = False
        """True if it ended before every outcome was recorded: the store did not answer, or rows were locked."""
        self._unrenewed = False  # True: leases could not be renewed in time, and no heartbeat has succeeded since
        self._stopped_at = 0.0  # monotonic time of the first :meth:`stop`
        self._claim_below = 0  # the worker claims again when it holds this many jobs or fewer

    @property
    def running(self) -> list[Attempt]:
        """The running attempts."""
        return self._attempts.all()

    @property
    def draining(self) -> bool:
        """True if it claims no more jobs."""
        return self._stop.is_set()

    def tokens(self) -> list[int]:
        """Return the tokens of the leases it holds; safe to call from another thread."""
        return list(self._leases)

    def stop(self, *, now: bool = False) -> None:
        """Claim no more and let running jobs finish within the grace period; ``now``: release them at once."""
        if not self._stop.is_set():
            self._stopped_at = time.monotonic()
        self._stop.set()
        if now:
            self._stop_now.set()
        self._freed.set()
        self._store.wake()

    def renewed(self, tokens: Sequence[int], at: float) -> None:
        """Note that the store answers heartbeats, and that these leases were valid at this monotonic time."""
        if self._unrenewed:
            self._unrenewed = False
            self._freed.set()
        for token in tokens:
            if lease := self._leases.get(token):
                lease.renewed = max(lease.renewed, at)

    def lose(self, tokens: Sequence[int], reason: str) -> None:
        """Cancel the handlers of these lost leases, and forget their other jobs."""
        gone = {token for token in tokens if self._leases.pop(token, None)}
        if not gone:
            return
        running = [attempt for attempt in self.running if attempt.job.token in gone]
        lost = [attempt.job for attempt in running if not attempt.finished] + self._prefetched.pop_leases(gone)
        for attempt in running:
            self._attempts.cancel(attempt, CancelReason.LOST)
        report_lost(lost, reason)

    def lose_jobs(self, keys: Sequence[Key], reason: str) -> None:
        """Cancel or forget single lost jobs; the rest of their leases is still held."""
        gone = set(keys)
        lost = [attempt for attempt in self._attempts.of(gone) if not attempt.finished]
        dropped = self._prefetched.pop_keys(gone)
        for attempt in lost:
            self._attempts.cancel(attempt, CancelReason.LOST)
        self._acker.put([Ack(job, Outcome.LOST, 0) for job in dropped])
        report_lost([attempt.job for attempt in lost] + dropped, reason)

    def stop_unrenewed(self) -> None:
        """Cancel the handlers of leases that could not be renewed in time: another worker may run their jobs by now.

        The leases are kept, since only the store knows whether they exist: when it answers, finished jobs are reported
        and the others released. Nothing is claimed until a heartbeat succeeds; it would be cancelled as well.
        """
        oldest = time.monotonic() - self._options.lease
        late = {token for token, lease in self._leases.items() if lease.renewed < oldest}
        if not late:
            return
        self._unrenewed = True
        running = [
            each for each in self.running if each.job.token in late and not (each.cancel_reason or each.finished)
        ]
        waiting = self._prefetched.pop_leases(late)
        for attempt in running:
            self._attempts.cancel(attempt, CancelReason.UNRENEWED)
        self._release(waiting)
        report_lost([each.job for each in running] + waiting, "the lease could not be renewed in time")

    def cancel(self, ids: Sequence[int | str]) -> None:
        """Cancel these jobs, as the user asked."""
        wanted = set(ids)
        for attempt in self.running:
            if attempt.job.id in wanted and attempt.cancel_reason is None:
                self._attempts.cancel(attempt, CancelReason.CANCELLED)
        self._release(self._prefetched.pop_ids(wanted))  # the store records them as cancelled

    async def run(self) -> None:
        """Work until :meth:`stop`, then let running jobs finish within the grace period and release the rest."""
        acked = asyncio.Event()
        acker = asyncio.create_task(self._acker.run(acked), name="howdah ack")
        sink.set(self._job_log)
        self._attempts.context = copy_context()
        logging_jobs = asyncio.create_task(self._job_log.run(acked), name="howdah job log") if self._job_log else None
        try:
            await self._claim()
            await self._drain()
        finally:
            acked.set()
            if self.incomplete or not await self._acker.flush(FLUSH_TIMEOUT):
                acker.cancel()  # the store does not answer, and a stop must end all the same
                log.error("the last outcomes could not be recorded; their jobs run again when their leases expire")
            await end_within(LOOPS_TIMEOUT, acker, *([logging_jobs] if logging_jobs else []))
            await self._attempts.close()
            self._drain_group.leave(self)
        if acker.done() and not acker.cancelled():
            acker.result()

    async def _claim(self) -> None:
        """Claim until stopped. A reply that arrives after the stop starts no job and does not use up the grace."""
        claiming = asyncio.create_task(self._claim_loop(), name="howdah claim")
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                self._release(self._prefetched.pop_all())  # otherwise they would start as slots become free
        finally:
            stopping.cancel()
            await end_within(CLAIM_TIMEOUT, claiming)
        if claiming.done() and not claiming.cancelled():
            claiming.result()

    async def _claim_loop(self) -> None:
        outage = Outage("claim")
        while not self._stop.is_set():
            if stale := self._prefetched.pop_older_than(MAX_PREFETCH_AGE):
                self._prefetch_size.reset()
                self._release(stale)  # they could not start soon, and another node may be idle
            limit = self._claim_limit()
            if limit <= 0 or self._acker.full or self._unrenewed:
                self._freed.clear()
                await wait(self._freed, MAX_PREFETCH_AGE)
                continue
            try:
                found = await self._claim_once(limit)
                outage.heal()
                if not found and self._options.drain and await self._is_drained(limit):
                    return
                if not found:
                    await self._sleep()
            except Exception as error:
                await wait(self._stop, outage.fail(error))

    def _claim_limit(self) -> int:
        """Return how many jobs to claim now; 0 while the worker holds enough jobs to save the round trip."""
        prefetch = self._prefetch_size.jobs() if self._slots.total > 1 else 0
        self._claim_below = self._slots.total + prefetch - max(1, prefetch // 2)
        held = self._slots.taken + len(self._prefetched)
        return self._prefetch_size.enlarge(self._slots.total + prefetch - held) if held <= self._claim_below else 0

    async def _claim_once(self, limit: int) -> bool:
        """Claim up to ``limit`` jobs and start those that have a slot; returns whether there were any."""
        began = time.monotonic()
        if not (jobs := await self._store.claim(limit, self._prefetched.room())):
            return False
        telemetry.emit("job.claim", jobs=jobs, seconds=time.monotonic() - began)
        self._prefetch_size.claimed(jobs)
        for token, left in Counter(job.token for job in jobs).items():
            self._leases[token] = Lease(left, began)
        self._prefetched.put(jobs)
        late = time.monotonic() - began > self._options.lease  # the process or the network was frozen
        if late or self._stop.is_set():
            self._release(self._prefetched.pop_leases({job.token for job in jobs}))
        self._attempts.fill()
        await asyncio.sleep(0)
        return True

    async def _is_drained(self, limit: int) -> bool:
        """Return whether no job runs, every outcome is recorded, and a last claim finds no job."""
        if self._attempts or self._prefetched or self.overdue.pending or not await self._acker.flushed():
            return False
        since = self._drain_group.activity
        return not await self._claim_once(limit) and self._drain_group.idle(self, since)

    async def _sleep(self) -> None:
        """Wait until there may be new jobs; only briefly while prefetched jobs wait for a slot."""
        if self._options.drain or self._prefetched:
            self._freed.clear()
            await wait(self._freed, 0.01 if self._options.drain else MAX_PREFETCH_AGE)
        else:
            await self._store.rest()

    def _attempts_finished(self, acks: Sequence[Ack]) -> None:
        """Acknowledge the outcomes of finished attempts."""
        self._prefetch_size.finished(len(acks), sum(map(_took, acks)))
        self._prefetched.finished(ack.job for ack in acks)
        self._acker.put(acks)

    def _slots_freed(self) -> None:
        """Wake the claim loop if a claim is worth its round trip again."""
        self._drain_group.active()
        if self._slots.taken + len(self._prefetched.jobs) <= self._claim_below:
            self._freed.set()

    async def _drain(self) -> None:
        """Wait for running jobs within the grace period, then cancel them and release all leases."""
        self._release(self._prefetched.pop_all())
        self._claim_below = self._slots.total  # from now on every finished job sets ``_freed``
        deadline = (self._stopped_at or time.monotonic()) + self._options.grace
        while self._attempts and not self._stop_now.is_set() and time.monotonic() < deadline:
            self._freed.clear()
            await wait_any(max(0.0, deadline - time.monotonic()), self._freed, self._stop_now)
        for attempt in self.running:
            self._attempts.cancel(attempt, CancelReason.SHUTDOWN)
        until = time.monotonic() + 1.5 + max((each.handler.ends_within for each in self.running), default=0.0)
        while any(not attempt.finished for attempt in self.running) and time.monotonic() < until:
            self._freed.clear()
            await wait(self._freed, 0.1)
        self.incomplete = not await self._acker.flush(FLUSH_TIMEOUT)
        if self._leases:
            try:
                async with asyncio.timeout(RELEASE_TIMEOUT):
                    telemetry.emit("job.release", jobs=await self._store.release(list(self._leases)))
            except Exception as error:
                self.incomplete = True
                log.warning(NOT_RELEASED, len(self._leases), f"{type(error).__name__}: {error}")
            self._leases.clear()

    def _release(self, jobs: list[Job]) -> None:
        """Return unstarted jobs to the store without charging an attempt."""
        self._acker.put([Ack(job, Outcome.RELEASED, 0) for job in jobs])
        if jobs:
            telemetry.emit("job.release", jobs=len(jobs))
