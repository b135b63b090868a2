"""Worker: claim, execute, ack. One class over every store."""

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
from howdah.journal import Journal, Mouth, voice
from howdah.outcome import Ack, Outcome
from howdah.service import Outage, end_within, wait, wait_any
from howdah.store import Store
from howdah.work.ack import Acker, Lease, refused
from howdah.work.attempts import Attempts, Key
from howdah.work.execute import Attempt, Why
from howdah.work.inbox import Inbox
from howdah.work.options import WorkerOptions
from howdah.work.pace import STALE, Pace
from howdah.work.quiet import Quiet
from howdah.work.slots import Slots

log = logging.getLogger("howdah")

CLAIM_WITHIN = 3.0
"""Seconds a claim under way has to be answered when the worker is stopped."""
FLUSH_WITHIN = 3.0
"""Seconds without a recorded outcome after which a stopped worker gives up on the rest."""
RELEASE_WITHIN = 2.0
"""Seconds a stopped worker has to hand back its leases."""
END_WITHIN = 1.0
"""Seconds its loops have to end."""

_took = attrgetter("took")


class Worker:
    """Takes work from a store while it has free slots, and says how each job ended."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        options: WorkerOptions,
        slots: Slots | None = None,
        quiet: Quiet | None = None,
    ) -> None:
        self._slots = slots or Slots(options.slots)
        self._quiet = quiet or Quiet(1)
        self._store = store
        self._options = options
        self._pace = Pace()
        self._inbox = Inbox(options.limited)
        self._attempts = Attempts(
            store,
            handlers,
            self._inbox,
            self._slots,
            threads=options.slots,
            largest_result=options.largest_result,
            over=self._over,
            ended=self._ended,
        )
        self._leases: dict[int, Lease] = {}
        self._mouth = Mouth(store) if isinstance(store, Journal) else None
        self._acker = Acker(store, self._leases, self._mouth)
        self._freed = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self.silent = False
        """Whether it ended before every outcome was recorded: the store did not answer, or rows were locked."""
        self._stopped_at = 0.0
        """When it was asked to stop, by the monotonic clock."""
        self._enough = 0
        """With so many jobs in hand or fewer, another claim is due."""

    # ---------------------------------------------------------------- what others may ask and say

    @property
    def running(self) -> list[Attempt]:
        """The attempts running now."""
        return self._attempts.all()

    @property
    def draining(self) -> bool:
        return self._stop.is_set()

    def tokens(self) -> list[int]:
        """The leases held, for the heartbeat; safe to call from another thread."""
        return list(self._leases)

    def stop(self, *, now: bool = False) -> None:
        """Claim no more and let running jobs finish within the grace; ``now``: hand them back at once."""
        if not self._stop.is_set():
            self._stopped_at = time.monotonic()
        self._stop.set()
        if now:
            self._hurry.set()
        self._freed.set()
        self._store.wake()

    def renewed(self, tokens: Sequence[int], at: float) -> None:
        """These leases were surely ours at this moment of the monotonic clock."""
        for token in tokens:
            if lease := self._leases.get(token):
                lease.renewed = max(lease.renewed, at)

    def lose(self, tokens: Sequence[int], reason: str) -> None:
        """These leases are no longer ours: stop their handlers, forget the rest."""
        gone = {token for token in tokens if token in self._leases}
        if not gone:
            return
        for token in gone:
            del self._leases[token]
        running = [attempt for attempt in self.running if attempt.job.token in gone]
        lost = [attempt.job for attempt in running if not attempt.over] + self._inbox.drop_leases(gone)
        for attempt in running:
            self._attempts.cancel(attempt, Why.LOST)
        if lost:
            refused(lost, reason)

    def lose_jobs(self, keys: Sequence[Key], reason: str) -> None:
        """Single jobs of leases are no longer ours: stop their handlers, forget the rest."""
        gone = set(keys)
        lost = [attempt for attempt in self._attempts.of(gone) if not attempt.over]
        dropped = self._inbox.drop_keys(gone)
        for attempt in lost:
            self._attempts.cancel(attempt, Why.LOST)
        self._acker.put([Ack(job, Outcome.LOST, 0) for job in dropped])
        if lost or dropped:
            refused([attempt.job for attempt in lost] + dropped, reason)

    def lose_expired(self) -> None:
        """Give up every lease that could not be renewed in time; somebody else may hold its jobs by now."""
        oldest = time.monotonic() - self._options.lease
        expired = [token for token, lease in self._leases.items() if lease.renewed < oldest]
        self.lose(expired, "the lease could not be renewed in time")

    def cancel(self, ids: Sequence[int | str]) -> None:
        """Somebody wants these jobs cancelled."""
        wanted = set(ids)
        for attempt in self.running:
            if attempt.job.id in wanted and attempt.why is None:
                self._attempts.cancel(attempt, Why.CANCELLED)
        self._hand_back(self._inbox.drop_ids(wanted))  # the store turns them into cancelled

    # ---------------------------------------------------------------- the work

    async def run(self) -> None:
        """Work until :meth:`stop`, then let running jobs finish within the grace and hand back the rest."""
        acked = asyncio.Event()
        acker = asyncio.create_task(self._acker.run(acked), name="howdah ack")
        voice.set(self._mouth)
        self._attempts.context = copy_context()
        speaking = asyncio.create_task(self._mouth.run(acked), name="howdah speak") if self._mouth else None
        try:
            await self._claim()
            await self._drain()
        finally:
            acked.set()
            if self.silent or not await self._acker.flush(FLUSH_WITHIN):
                acker.cancel()  # the store does not answer: a stop must end all the same
                log.error("the last outcomes could not be recorded; their jobs run again when their leases expire")
            await end_within(END_WITHIN, acker, *([speaking] if speaking else []))
            await self._attempts.close()
        if acker.done() and not acker.cancelled():
            acker.result()

    async def _claim(self) -> None:
        """Claim until stopped. A claim that is answered later starts nothing, and must not use up the grace."""
        claiming = asyncio.create_task(self._claim_until_stopped(), name="howdah claim")
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({claiming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                self._hand_back(self._inbox.drop_all())  # or what ends meanwhile would make room for them
        finally:
            stopping.cancel()
            await end_within(CLAIM_WITHIN, claiming)
        if claiming.done() and not claiming.cancelled():
            claiming.result()

    async def _claim_until_stopped(self) -> None:
        outage = Outage("claim")
        while not self._stop.is_set():
            if stale := self._inbox.drop_older(STALE):
                self._pace.stop()
                self._hand_back(stale)  # it could not start soon, and another node may be idle
            most = self._room()
            if most <= 0 or self._acker.full:
                self._freed.clear()
                await wait(self._freed, STALE)
                continue
            try:
                found = await self._claim_once(most)
                outage.heal()
                if not found and self._options.drain and await self._is_drained(most):
                    return
                if not found:
                    await self._rest()
            except Exception as error:
                await wait(self._stop, outage.fail(error))

    async def _is_drained(self, most: int) -> bool:
        """Whether nothing runs, every outcome is recorded, and a last look finds nothing."""
        if self._attempts or self._inbox:
            return False
        if not await self._acker.flushed():
            return False
        since = self._quiet.turn
        return not await self._claim_once(most) and self._quiet.idle(self, since)

    async def _rest(self) -> None:
        """Sleep until work may have come; while jobs wait for their start, not for long."""
        if self._options.drain or self._inbox:
            self._freed.clear()
            await wait(self._freed, 0.01 if self._options.drain else STALE)
        else:
            await self._store.rest()

    async def _claim_once(self, most: int) -> bool:
        began = time.monotonic()
        jobs = await self._store.claim(most, self._inbox.room())
        if not jobs:
            return False
        telemetry.emit("job.claim", jobs=jobs, seconds=time.monotonic() - began)
        for token, left in Counter(job.token for job in jobs).items():
            self._leases[token] = Lease(left, began)
        self._inbox.put(jobs)
        late = time.monotonic() - began > self._options.lease  # we were frozen, or the network was
        if late or self._stop.is_set():
            self._hand_back(self._inbox.drop_leases({job.token for job in jobs}))
        self._attempts.fill()
        await asyncio.sleep(0)
        return True

    def _room(self) -> int:
        """How many jobs to claim now; 0 until a claim is worth its round trip."""
        ahead = self._pace.ahead() if self._slots.total > 1 else 0
        self._enough = self._slots.total + ahead - max(1, ahead // 2)
        held = self._slots.taken + len(self._inbox)
        return self._slots.total + ahead - held if held <= self._enough else 0

    def _over(self, acks: Sequence[Ack]) -> None:
        """These attempts ended."""
        self._pace.finished(len(acks), sum(map(_took, acks)))
        if self._inbox.limits:
            self._inbox.over([ack.job for ack in acks])
        self._acker.put(acks)

    def _ended(self) -> None:
        """Handlers are through: there are free slots, and what they did may be work for others."""
        self._quiet.busy()
        if self._slots.taken + len(self._inbox.jobs) <= self._enough:
            self._freed.set()

    # ---------------------------------------------------------------- handing back

    async def _drain(self) -> None:
        self._hand_back(self._inbox.drop_all())
        self._enough = self._slots.total  # every job that ends is of interest now
        deadline = (self._stopped_at or time.monotonic()) + self._options.grace
        while self._attempts and not self._hurry.is_set() and time.monotonic() < deadline:
            self._freed.clear()
            await wait_any(max(0.0, deadline - time.monotonic()), self._freed, self._hurry)
        for attempt in self.running:
            self._attempts.cancel(attempt, Why.SHUTDOWN)
        until = time.monotonic() + 1.5 + max((each.handler.ends_within for each in self.running), default=0.0)
        while any(not attempt.over for attempt in self.running) and time.monotonic() < until:
            self._freed.clear()
            await wait(self._freed, 0.1)
        self.silent = not await self._acker.flush(FLUSH_WITHIN)
        if self._leases:  # whatever is left of them
            try:
                async with asyncio.timeout(RELEASE_WITHIN):
                    telemetry.emit("job.release", jobs=await self._store.release(list(self._leases)))
            except Exception as error:
                self.silent, why = True, f"{type(error).__name__}: {error}"
                log.warning("could not hand back %d leases (%s); they run out by themselves", len(self._leases), why)
            self._leases.clear()

    def _hand_back(self, jobs: list[Job]) -> None:
        self._acker.put([Ack(job, Outcome.RELEASED, 0) for job in jobs])
        if jobs:
            telemetry.emit("job.release", jobs=len(jobs))
