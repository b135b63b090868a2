"""Wakes idle workers: by a notification, when a job becomes due, or by the fallback poll.

Enqueue notifies only while a worker sleeps. Before it sleeps a worker therefore announces until when it sleeps, lists
the transactions in flight (they may have checked for sleepers before the announcement), claims once more and then
waits; it claims again while one of *those* transactions is open. An announcement expires by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from howdah.loops import wait as wait_event
from howdah.postgres.database import Session
from howdah.postgres.listen import Listener


@dataclass(slots=True)
class SharedConnections:
    """Connections shared by several stores, and their newest token."""

    claims: Session
    acks: Session
    listener: Listener | None
    newest: int = 0


def channel(schema: str) -> str:
    """Return the notification channel of a schema."""
    return "howdah_" + hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]


ANNOUNCEMENT_TTL = 2.0
"""Seconds until the announcement of a sleeping worker expires; renewed after half of it."""
RAMP = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
"""Seconds between claims while a transaction is open that may have enqueued before the announcement."""
LONG_TRANSACTION = 40
"""Claims after which such a transaction counts as long and is polled once a second."""
DEAF_POLL = 1.0
"""Longest poll interval in seconds while notifications do not arrive."""


class Wakeup:
    """Waits on behalf of one worker. Times are differences of this process's monotonic clock."""

    def __init__(
        self,
        session: Session,
        sql: Mapping[str, str],
        queues: Sequence[str] | None,
        *,
        poll: float,
        deaf: Callable[[], bool],
    ) -> None:
        self._session = session
        self._sql = sql
        self._queues = list(queues) if queues is not None else None
        self._poll = poll
        self._deaf = deaf
        self._notified = asyncio.Event()
        self._asleep = False
        self._woken = False
        self._announced_at = 0.0
        self._in_flight: list[int] = []
        self._step = 0
        self._check_at = 0.0
        self._due = float("inf")
        self._reported_due = float("inf")
        self._backstop = 0.0
        self._reminder = float("inf")
        self.owed_at = float("inf")
        """When to wake the worker because a claim did not look at everything."""

    def wake(self) -> None:
        """Wake the worker: jobs were enqueued, or may have been."""
        self._notified.set()

    def was_notified(self) -> bool:
        """Return and clear whether the last wait ended by :meth:`wake`."""
        woken, self._woken = self._woken, False
        return woken

    def stay_awake(self) -> None:
        """A claim found jobs."""
        self._asleep = False

    def expect(self, seconds: float | None) -> None:
        """A job becomes due in ``seconds``."""
        if seconds is None:
            return
        due = time.monotonic() + seconds
        self._reported_due = min(self._reported_due, due)
        if due < self._due - 0.001:
            self._due = due
            if self._asleep:
                self._notified.set()  # it waits for a later time

    def remind(self, seconds: float | None) -> None:
        """Wake the worker after ``seconds`` in any case; ``None`` cancels this."""
        self._reminder = float("inf") if seconds is None else time.monotonic() + seconds

    def due(self) -> bool:
        """Return and clear whether a job has become due."""
        if time.monotonic() < self._due:
            return False
        self._due = float("inf")
        return True

    async def wait(self) -> None:
        """Return when another claim is worthwhile; immediately the first time, since sleeping needs one more claim."""
        if not self._asleep or time.monotonic() - self._announced_at > ANNOUNCEMENT_TTL:
            await self._prepare_to_sleep()
            return
        while True:
            if await wait_event(self._notified, self._pause()):
                self._notified.clear()
                self._asleep = False
                self._woken = True
                return
            now = time.monotonic()
            if now - self._announced_at > ANNOUNCEMENT_TTL:
                self._asleep = False  # it expired while the process was delayed: start over
                return
            if now >= min(self._due, self._backstop, self._reminder, self.owed_at):
                self._backstop = now + self._poll_interval()
                self._reminder = float("inf") if now >= self._reminder else self._reminder
                return
            if now - self._announced_at >= ANNOUNCEMENT_TTL / 2:
                await self._announce()
            if self._in_flight and now >= self._check_at:
                self._in_flight = await self._session.fetchval(self._sql["still_open"], self._in_flight)
                self._step += 1
                self._check_at = time.monotonic() + self._ramp()
                return

    async def _prepare_to_sleep(self) -> None:
        self._notified.clear()
        await self._announce()
        self._in_flight, self._step = await self._session.fetchval(self._sql["open_transactions"]), 0
        self._check_at = time.monotonic() + self._ramp()
        self._asleep = True
        self._backstop = time.monotonic() + self._poll_interval()

    async def _announce(self) -> None:
        announced_at = time.monotonic()
        self._reported_due = float("inf")
        # without notifications an announcement would only make writers notify in vain
        ttl = 0 if self._deaf() else int(ANNOUNCEMENT_TTL * 1000)
        await self._session.fetchval(self._sql["announce_sleep"], self._queues, ttl)
        due_in = await self._session.fetchval(self._sql["next_due"], self._queues)
        self._announced_at = announced_at
        due = float("inf") if due_in is None else time.monotonic() + due_in
        self._due = min(due, self._reported_due)  # a due time reported meanwhile may be missing in the reply

    def _pause(self) -> float:
        check = self._check_at if self._in_flight else float("inf")
        renewal = self._announced_at + ANNOUNCEMENT_TTL / 2
        until = min(self._due, self._backstop, self._reminder, self.owed_at, renewal, check)
        return max(0.0, until - time.monotonic())

    def _ramp(self) -> float:
        return RAMP[self._step] if self._step < len(RAMP) else 0.25 if self._step < LONG_TRANSACTION else 1.0

    def _poll_interval(self) -> float:
        return min(self._poll, DEAF_POLL) if self._deaf() else self._poll
