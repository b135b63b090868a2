"""Acker: gathers outcomes and sends them together; while one batch is on its way the next one gathers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence

from howdah import telemetry
from howdah.job import Job
from howdah.journal import Mouth
from howdah.outcome import Ack, Acks, Outcome
from howdah.service import QUIET, Outage, wait, wait_any
from howdah.store import Store
from howdah.work.postponed import Postponed

log = logging.getLogger("howdah")

LOST = Outcome.LOST
LARGEST_BATCH = 2000
MOST_WAITING = 8000
STUCK = 3
"""Failures in a row after which nothing more is begun that could not be reported either."""


_unsaid: Counter[str] = Counter()
"""Jobs that were lost since that was last said, by reason."""
_said: dict[str, float] = {}


def refused(jobs: list[Job], reason: str) -> None:
    """Say that jobs were not ours to finish; at most once a second for the same reason, with those in between."""
    now = time.monotonic()
    _unsaid[reason] += len(jobs)
    if now - _said.get(reason, -QUIET) >= QUIET:
        _said[reason] = now
        lost = _unsaid.pop(reason)
        log.warning("%d %s lost: %s", lost, "job was" if lost == 1 else "jobs were", reason)
    telemetry.emit("job.lost", jobs=jobs, reason=reason)


class Lease:
    """One claim: how many of its jobs are still without an outcome, and when it was last surely ours."""

    __slots__ = ("left", "lost", "renewed")

    def __init__(self, left: int, renewed: float) -> None:
        self.left = left
        self.lost = False
        """Whether a job of it ended as lost: the store was told no outcome of it, so it decides what is left."""
        self.renewed = renewed


class Acker:
    """Sends outcomes until they are recorded or their lease is gone; none is swallowed."""

    def __init__(
        self,
        store: Store,
        leases: dict[int, Lease],
        mouth: Mouth | None = None,
    ) -> None:
        self._mouth = mouth
        self._store = store
        self._leases = leases
        self._waiting: list[Ack] = []
        self._postponed = Postponed()
        self._outage = Outage("ack")
        self._some = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()
        self._busy = False
        self._batches = 0
        """How many were sent of which something was recorded."""

    @property
    def idle(self) -> bool:
        """Whether everything said so far is recorded."""
        return not self._waiting and not self._busy and not self._postponed

    @property
    def full(self) -> bool:
        """Whether so many outcomes wait, or none gets through, that no more work should be taken."""
        waiting = len(self._waiting) + len(self._postponed)
        return waiting >= MOST_WAITING or (self._busy and self._outage.failures >= STUCK)

    def put(self, acks: Sequence[Ack]) -> None:
        """Record these as soon as possible."""
        if not self._waiting and acks:
            self._some.set()
        self._waiting += acks

    async def run(self, stop: asyncio.Event) -> None:
        """Send until ``stop`` is set and nothing waits."""
        while not (stop.is_set() and not self._waiting and not self._postponed):
            self._waiting += self._postponed.take()
            if not self._waiting:
                self._some.clear()
                self._sent.set()
                if self._postponed:
                    await wait(self._some, self._postponed.next_in())
                else:
                    await wait_any(None, self._some, stop)
                continue
            self._busy = True
            self._sent.clear()
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
            if await self._send(batch, self._outage):
                self._batches += 1
            self._busy = False
        self._sent.set()

    async def flush(self, seconds: float) -> bool:
        """Wait until everything said so far is recorded; false if nothing was for so many seconds."""
        sent, until = self._batches, time.monotonic() + seconds
        while not self.idle:
            await wait(self._sent, 0.1)
            await asyncio.sleep(0.01 if self._postponed else 0)
            if self._batches != sent:
                sent, until = self._batches, time.monotonic() + seconds
            elif time.monotonic() > until:
                return False
        return True

    async def flushed(self) -> bool:
        """Wait until everything said so far is recorded; false if the rest is postponed."""
        while self._waiting or self._busy:
            await self._sent.wait()
            await asyncio.sleep(0)
        return self.idle

    async def _send(self, batch: list[Ack], outage: Outage) -> bool:
        """Send a batch until the store answers; returns whether it did more than postpone all of it."""
        sent = tell = [ack for ack in batch if not ack.recorded and ack.outcome is not LOST]
        told = [ack for ack in batch if ack.recorded] if len(sent) < len(batch) else []
        if len(sent) + len(told) < len(batch):
            self._note_lost(batch)
        finished, doubtful = self._count(batch)
        accepted: list[Ack] = []
        if self._mouth and self._mouth.speaking:  # nobody may speak for a job that is over
            await self._mouth.last_words([ack.job for ack in tell])
        while tell or finished:
            try:
                accepted = await self._store.ack(tell, finished)
            except Exception as error:
                await asyncio.sleep(outage.fail(error))
                # what is no longer ours need not be said: it runs elsewhere by now
                tell = self._drop_lost(tell)
                finished = [token for token in finished if token in self._leases]
                continue
            outage.heal()
            break
        later = [ack for ack in tell if ack.postponed] if len(accepted) < len(tell) else []
        if later or self._postponed:
            tell = [ack for ack in tell if not ack.postponed]
            later = self._drop_lost(later)
            self._postponed.settle(sent)
            for ack in later:
                self._leases[ack.job.token].left += 1  # it has no outcome yet, so its lease is not over
            unfinished = {ack.job.token for ack in later}
            finished = [token for token in finished if token not in unfinished]
            doubtful = [token for token in doubtful if token not in unfinished]
        for token in finished:
            self._leases.pop(token, None)
        if doubtful:
            await self._release(doubtful)
        if len(accepted) < len(tell):
            known = {id(ack) for ack in accepted}
            refused([ack.job for ack in tell if id(ack) not in known], "the store refused the outcome")
        if told or accepted:
            telemetry.emit("job.ack", acks=Acks(told + accepted if told else accepted))
        return len(later) < len(batch)

    def _drop_lost(self, acks: list[Ack]) -> list[Ack]:
        """Return the outcomes whose leases are still held; report the others as lost."""
        gone = [ack for ack in acks if ack.job.token not in self._leases]
        for ack in gone:
            ack.postponed = False
        if gone:
            refused([ack.job for ack in gone], "the outcome could not be recorded in time")
        return [ack for ack in acks if ack.job.token in self._leases]

    def _note_lost(self, batch: list[Ack]) -> None:
        """Note the leases of jobs that were lost."""
        for ack in batch:
            if ack.outcome is LOST and (lease := self._leases.get(ack.job.token)):
                lease.lost = True

    def _count(self, batch: list[Ack]) -> tuple[list[int], list[int]]:
        """Cross the batch off its leases; returns the tokens of which nothing is left, those with lost jobs apart."""
        finished: list[int] = []
        doubtful: list[int] = []
        for token, count in Counter([ack.job.token for ack in batch]).items():
            lease = self._leases.get(token)
            if lease is not None:
                lease.left -= count
                if not lease.left:
                    (doubtful if lease.lost else finished).append(token)
        return finished, doubtful

    async def _release(self, tokens: list[int]) -> None:
        """Hand back leases with lost jobs: what the store still has of them must not wait until they expire."""
        try:
            await self._store.release(tokens)
        except Exception as error:
            log.warning("could not hand back %d leases (%s); they run out by themselves", len(tokens), error)
        for token in tokens:
            self._leases.pop(token, None)
