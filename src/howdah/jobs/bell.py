"""Bell: how an idle worker waits. It sleeps until somebody rings, a job falls due, or the backstop poll comes.

Enqueue notifies only while somebody sleeps. Falling asleep is therefore a small ritual: hang the sign, note which
transactions are in flight (they may have looked before the sign hung), claim once more, then wait; and look again
while one of *those* transactions is open. A sign lapses by itself, nobody takes it down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from howdah.jobs.labels import serves
from howdah.pg.database import Session
from howdah.service import wait

SIGN = 2.0
"""Seconds a sign lasts; renewed at half of it."""
RAMP = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
"""Seconds between looks while a transaction is open that may have enqueued before the sign hung."""
PATIENT = 40
"""Looks after which such a transaction is taken for a long one."""
DEAF_POLL = 1.0


class Bell:
    """The waiting of one worker. All times are on this process's own monotonic clock, as distances only."""

    def __init__(
        self,
        session: Session,
        sql: Mapping[str, str],
        queues: Sequence[str] | None,
        *,
        poll: float,
        deaf: Callable[[], bool],
        labels: Collection[str] = (),
    ) -> None:
        self._session = session
        self._sql = sql
        self._queues = list(queues) if queues is not None else None
        self._poll = poll
        self._deaf = deaf
        self._labels = labels
        self._rung = asyncio.Event()
        self._asleep = False
        self._woken = False
        self._hung = 0.0
        self._in_flight: list[int] = []
        self._step = 0
        self._look = 0.0
        self._due = float("inf")
        self._heard = float("inf")
        self._backstop = 0.0
        self._reminder = float("inf")
        self.known: list[str] = list(queues or ())
        """The queues to claim from."""

    def know(self, queues: Sequence[str]) -> None:
        """These queues exist; those whose labels the node lacks are not for it."""
        self.known = [queue for queue in queues if serves(queue, self._labels)]

    def ring(self) -> None:
        """Somebody enqueued, or may have."""
        self._rung.set()

    def was_rung(self) -> bool:
        """Whether the last rest ended because somebody rang; forgets it."""
        woken, self._woken = self._woken, False
        return woken

    def awake(self) -> None:
        """A claim found work."""
        self._asleep = False

    def expect(self, seconds: float | None) -> None:
        """A job falls due in so many seconds."""
        if seconds is None:
            return
        due = time.monotonic() + seconds
        self._heard = min(self._heard, due)
        if due < self._due - 0.001:
            self._due = due
            if self._asleep:
                self._rung.set()  # it waits for something later

    def remind(self, seconds: float | None) -> None:
        """Another claim is worth it in so many seconds, whatever is enqueued meanwhile; ``None``: no longer."""
        self._reminder = float("inf") if seconds is None else time.monotonic() + seconds

    def due(self) -> bool:
        """Whether a job has fallen due since it was last looked for; forgets it."""
        if time.monotonic() < self._due:
            return False
        self._due = float("inf")
        return True

    async def rest(self) -> None:
        """Return when another claim is worth it; at once the first time, since falling asleep needs one more claim."""
        if not self._asleep or time.monotonic() - self._hung > SIGN:
            await self._fall_asleep()
            return
        while True:
            if await wait(self._rung, self._pause()):
                self._rung.clear()
                self._asleep = False
                self._woken = True
                return
            now = time.monotonic()
            if now - self._hung > SIGN:
                self._asleep = False  # it lapsed while we were held up: start over
                return
            if now >= min(self._due, self._backstop, self._reminder):
                self._backstop = now + self._poll_interval()
                self._reminder = float("inf") if now >= self._reminder else self._reminder
                return
            if now - self._hung >= SIGN / 2:
                await self._doze()
            if self._in_flight and now >= self._look:
                self._in_flight = await self._session.fetchval(self._sql["in_flight"], self._in_flight)
                self._step += 1
                self._look = time.monotonic() + self._ramp()
                return

    async def _fall_asleep(self) -> None:
        self._rung.clear()
        await self._doze()
        self._in_flight, self._step = await self._session.fetchval(self._sql["underway"]), 0
        self._look = time.monotonic() + self._ramp()
        self._asleep = True
        self._backstop = time.monotonic() + self._poll_interval()

    async def _doze(self) -> None:
        hung = time.monotonic()
        self._heard = float("inf")
        # a sign nobody can be called by would only make the writers notify
        sign = 0 if self._deaf() else int(SIGN * 1000)
        row = await self._session.fetchrow(self._sql["doze"], self._queues, sign)
        self._hung = hung
        self.know(row["known"])
        due = float("inf") if row["due_in"] is None else time.monotonic() + row["due_in"]
        self._due = min(due, self._heard)  # what was said meanwhile may be too young for the answer

    def _pause(self) -> float:
        look = self._look if self._in_flight else float("inf")
        until = min(self._due, self._backstop, self._reminder, self._hung + SIGN / 2, look)
        return max(0.0, until - time.monotonic())

    def _ramp(self) -> float:
        return RAMP[self._step] if self._step < len(RAMP) else 0.25 if self._step < PATIENT else 1.0

    def _poll_interval(self) -> float:
        return min(self._poll, DEAF_POLL) if self._deaf() else self._poll
