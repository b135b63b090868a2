"""Acknowledges outcomes in batches: while one batch is being sent, the next one is collected."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from howdah import telemetry
from howdah.job import Job
from howdah.loops import LOG_INTERVAL, Outage, wait, wait_any
from howdah.outcome import Ack, Acks, Outcome
from howdah.store import Store
from howdah.worker.job_log import JobLogBuffer

log = logging.getLogger("howdah")

LOST = Outcome.LOST
LARGEST_BATCH = 2000
"""Outcomes in one statement."""
MAX_WAITING = 8000
"""Outcomes that may wait to be sent before the worker stops claiming."""
MAX_EXCEPTIONS = 100
"""Waiting outcomes beyond which errors are not kept for the log: each keeps the frames of its handler alive."""
MAX_FAILURES = 3
"""Failed acks in a row after which the worker stops claiming: it could not report more outcomes either."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds before a postponed outcome is sent again; doubled each time. The first is short: the row may be locked by
the heartbeat of this node."""
WARN_AFTER = 10.0
"""Seconds after which postponed outcomes are logged."""

LOST_BEFORE_COMMIT = "the lease was lost before the transaction committed"
_unlogged: Counter[str] = Counter()
"""Lost jobs that are not yet in the log, by reason."""
_logged_at: dict[str, float] = {}


def report_lost(jobs: list[Job], reason: str) -> None:
    """Report jobs whose lease was lost; logged at most once a second for each reason, with the total number."""
    if not jobs:
        return
    now = time.monotonic()
    _unlogged[reason] += len(jobs)
    if now - _logged_at.get(reason, -LOG_INTERVAL) >= LOG_INTERVAL:
        _logged_at[reason] = now
        lost = _unlogged.pop(reason)
        log.warning("%d %s lost: %s", lost, "job was" if lost == 1 else "jobs were", reason)
    telemetry.emit("job.lost", jobs=jobs, reason=reason)


class Lease:
    """The lease of one claim: its jobs without an outcome, and the time of its last renewal."""

    __slots__ = ("left", "lost", "renewed")

    def __init__(self, left: int, renewed: float) -> None:
        self.left = left
        """Jobs without an outcome."""
        self.lost = False
        """True if a job of it was lost. The store gets no outcome for that job and decides what becomes of it."""
        self.renewed = renewed


class _Postponement:
    """One postponed outcome: when it is sent again, and since when it has been waiting."""

    __slots__ = ("ack", "due", "pause", "since")

    def __init__(self, ack: Ack, now: float) -> None:
        self.ack = ack
        self.pause = FIRST_PAUSE
        self.since = now
        self.due = now + FIRST_PAUSE


class Postponed:
    """The outcomes of locked rows. They wait here, so that later outcomes can be sent meanwhile."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, Any], _Postponement] = {}
        self._warned = False

    def __len__(self) -> int:
        return len(self._entries)

    def settle(self, acks: Sequence[Ack]) -> None:
        """Schedule those of these sent outcomes that are postponed, and forget the others."""
        now = time.monotonic()
        for ack in acks:
            key = (ack.job.token, ack.job.id)
            if not ack.postponed:
                self._entries.pop(key, None)
            elif entry := self._entries.get(key):
                entry.pause = min(LONGEST_PAUSE, 2 * entry.pause)
                entry.due = now + entry.pause
            else:
                self._entries[key] = _Postponement(ack, now)
        self._warn(now)

    def take(self) -> list[Ack]:
        """Return the outcomes to send again now; each must be passed to :meth:`settle` afterwards."""
        if not self._entries:
            return []
        now = time.monotonic()
        due = [entry for entry in self._entries.values() if entry.due <= now]
        for entry in due:
            entry.due = float("inf")
        return [entry.ack for entry in due]

    def next_in(self) -> float:
        """Return the seconds until the next outcome has to be sent again."""
        return max(0.0, min((entry.due for entry in self._entries.values()), default=0.0) - time.monotonic())

    def _warn(self, now: float) -> None:
        """Log once that outcomes wait, and again only after none has been waiting."""
        if not self._entries:
            self._warned = False
        elif not self._warned and any(now - entry.since > WARN_AFTER for entry in self._entries.values()):
            self._warned = True
            ids = [entry.ack.job.id for entry in self._entries.values()][:5]
            log.warning(
                "%d outcomes cannot be recorded yet: a transaction has locked the rows (%s)",
                len(self._entries),
                ", ".join(map(str, ids)),
            )


class Acker:
    """Sends each outcome until it is recorded or its lease is lost."""

    def __init__(
        self,
        store: Store,
        leases: dict[int, Lease],
        job_log: JobLogBuffer | None = None,
    ) -> None:
        self._job_log = job_log
        self._store = store
        self._leases = leases
        self._waiting: list[Ack] = []
        self._postponed = Postponed()
        self._outage = Outage("ack")
        self._available = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()
        self._sending = False
        self._batches = 0
        """Number of batches of which at least one outcome was recorded."""

    @property
    def idle(self) -> bool:
        """True if all outcomes are recorded."""
        return not self._waiting and not self._sending and not self._postponed

    @property
    def full(self) -> bool:
        """True if the worker must not claim: too many outcomes wait, or the store does not accept them."""
        waiting = len(self._waiting) + len(self._postponed)
        return waiting >= MAX_WAITING or (self._sending and self._outage.failures >= MAX_FAILURES)

    def put(self, acks: Sequence[Ack]) -> None:
        """Add outcomes to be recorded."""
        if not self._waiting and acks:
            self._available.set()
        if len(self._waiting) >= MAX_EXCEPTIONS:
            for ack in acks:
                ack.exception = None
        self._waiting += acks

    async def run(self, stop: asyncio.Event) -> None:
        """Send until ``stop`` is set and no outcome waits."""
        while not (stop.is_set() and not self._waiting and not self._postponed):
            self._waiting += self._postponed.take()
            if not self._waiting:
                self._available.clear()
                self._sent.set()
                if self._postponed:
                    await wait(self._available, self._postponed.next_in())
                else:
                    await wait_any(None, self._available, stop)
                continue
            self._sending = True
            self._sent.clear()
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
            if await self._send(batch, self._outage):
                self._batches += 1
            batch = []  # an idle worker must not keep the frames of its last errors
            self._sending = False
        self._sent.set()

    async def flush(self, seconds: float) -> bool:
        """Wait until all outcomes are recorded; returns false if none was recorded for this many seconds."""
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
        """Wait until all outcomes are recorded or postponed; returns whether none is postponed."""
        while self._waiting or self._sending:
            await self._sent.wait()
            await asyncio.sleep(0)
        return self.idle

    async def _send(self, batch: list[Ack], outage: Outage) -> bool:
        """Send a batch until the store answers; returns false if the store postponed all of it."""
        sent = unsent = [ack for ack in batch if not ack.recorded and ack.outcome is not LOST]
        recorded = [ack for ack in batch if ack.recorded] if len(sent) < len(batch) else []
        if len(sent) + len(recorded) < len(batch):
            self._mark_lost(batch)
        finished, doubtful = self._count_down(batch)
        accepted: list[Ack] = []
        if self._job_log and self._job_log.pending:  # after the ack the store accepts no more lines
            await self._job_log.flush([ack.job for ack in unsent])
        while unsent or finished:
            try:
                accepted = await self._store.ack(unsent, finished)
            except Exception as error:
                await asyncio.sleep(outage.fail(error))
                # leases that a heartbeat found to be gone are not acknowledged: their jobs run on another node by now
                unsent = self._drop_lost(unsent)
                finished = [token for token in finished if token in self._leases]
                continue
            outage.heal()
            break
        postponed = [ack for ack in unsent if ack.postponed] if len(accepted) < len(unsent) else []
        if postponed or self._postponed:
            unsent = [ack for ack in unsent if not ack.postponed]
            postponed = self._drop_lost(postponed)
            self._postponed.settle(sent)
            for ack in postponed:
                self._leases[ack.job.token].left += 1  # its job has no outcome yet, so the lease is not finished
            unfinished = {ack.job.token for ack in postponed}
            finished = [token for token in finished if token not in unfinished]
            doubtful = [token for token in doubtful if token not in unfinished]
        for token in finished:
            self._leases.pop(token, None)
        if doubtful:
            await self._release(doubtful, outage)
        if len(accepted) < len(unsent):
            known = {id(ack) for ack in accepted}
            report_lost([ack.job for ack in unsent if id(ack) not in known], "the store rejected the outcome")
        if recorded or accepted:
            telemetry.emit("job.ack", acks=Acks(recorded + accepted if recorded else accepted))
        return len(postponed) < len(batch)

    def _drop_lost(self, acks: list[Ack]) -> list[Ack]:
        """Return the outcomes whose leases are still held; report the others as lost."""
        gone = [ack for ack in acks if ack.job.token not in self._leases]
        for ack in gone:
            ack.postponed = False
        if gone:
            report_lost([ack.job for ack in gone], "the lease was lost before the outcome could be recorded")
        return [ack for ack in acks if ack.job.token in self._leases]

    def _mark_lost(self, batch: list[Ack]) -> None:
        """Mark the leases of jobs that were lost."""
        for ack in batch:
            if ack.outcome is LOST and (lease := self._leases.get(ack.job.token)):
                lease.lost = True

    def _count_down(self, batch: list[Ack]) -> tuple[list[int], list[int]]:
        """Subtract the batch from its leases; returns the tokens of those that are finished, and of those of them that
        had lost jobs (doubtful)."""
        finished: list[int] = []
        doubtful: list[int] = []
        for token, count in Counter([ack.job.token for ack in batch]).items():
            lease = self._leases.get(token)
            if lease is not None:
                lease.left -= count
                if not lease.left:
                    (doubtful if lease.lost else finished).append(token)
        return finished, doubtful

    async def _release(self, tokens: list[int], outage: Outage) -> None:
        """Release leases with lost jobs, so that jobs the store still has under them need not wait for the expiry."""
        while tokens := [token for token in tokens if token in self._leases]:
            try:
                await self._store.release(tokens)
            except Exception as error:
                await asyncio.sleep(outage.fail(error))
                continue
            outage.heal()
            for token in tokens:
                self._leases.pop(token, None)
