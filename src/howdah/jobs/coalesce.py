"""Coalesces concurrent enqueue calls into batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import asyncpg

from howdah.errors import DatabaseUnreachable, KeyHeld
from howdah.job import Enqueued, NewJob
from howdah.jobs.bulk import CHUNK
from howdah.postgres.database import Acquired

REJECTED = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.RaiseError,
    asyncpg.DeadlockDetectedError,
    asyncpg.exceptions.ProgramLimitExceededError,
)
"""Errors that one job of a batch may cause. The batch is halved until that job is alone."""
MOST_WAITERS = 4
"""Jobs of one process that wait at the same time for a key that another open transaction holds."""
SHORTEST_WAIT = 0.1
"""Seconds such a job waits for its key at least, once it may try."""

Waiting = tuple[NewJob, asyncio.Future[Enqueued]]
Send = Callable[[Any, Sequence[NewJob], bool], Awaitable[list[Enqueued]]]
"""Enqueues all jobs or none; the flag: at a key that another open transaction holds, give up at once."""
Wait = Callable[[Any, NewJob, float], Awaitable[Enqueued]]
"""Enqueues one job; waits at most so many seconds for a key that another open transaction holds."""


class Coalescer:
    """Collects jobs while the previous batch is being sent.

    ``send`` enqueues all of a batch or none. ``wait`` enqueues one job whose key is held by another open transaction;
    it is called beside the batches, so that no other job waits for that key.
    """

    def __init__(self, reach: Callable[[], Acquired], send: Send, wait: Wait, *, key_wait: float) -> None:
        self._reach = reach
        self._send = send
        self._wait = wait
        self._key_wait = key_wait
        """Seconds a job waits for such a key, the wait for a connection included."""
        self._waiting: list[Waiting] = []
        self._flush: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(MOST_WAITERS)
        self._held: Counter[str | None] = Counter()
        """Keys that jobs wait for. Another job with such a key waits as well: a batch must not try it again."""

    @property
    def idle(self) -> bool:
        """True if no call is in progress."""
        return not self._waiting and not self._waiters and (self._flush is None or self._flush.done())

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one job together with other concurrent calls."""
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._send_waiting(), name="howdah enqueue")
        return await future

    async def _send_waiting(self) -> None:
        """Send the collected jobs, batch by batch."""
        while self._waiting:
            batch: list[Waiting] = []
            try:
                async with self._reach() as conn:
                    while self._waiting:
                        batch, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
                        await self._resolve(conn, self._wait_for_keys(batch, self._held))
                        await asyncio.sleep(0)  # a caller that waited for this may have another one for this connection
            except BaseException as error:
                if not batch:  # there was no connection
                    batch, self._waiting = self._waiting, []
                for _, future in batch:
                    _fail(future, error if isinstance(error, Exception) else DatabaseUnreachable("stopped"))
                if not isinstance(error, Exception):
                    raise

    async def _resolve(self, conn: Any, batch: list[Waiting], *, hurry: bool = False) -> None:
        """Enqueue a batch and resolve every call; a rejected job fails only its own call.

        Many keys may be held at once, so only the first of them is waited for here, and after the second one the jobs
        are sent one by one.
        """
        if not batch:
            return
        try:
            made = await self._send(conn, [job for job, _ in batch], hurry)
        except KeyHeld as error:
            rest = self._wait_for_keys(batch, {error.key})
            for part in [[each] for each in rest] if hurry else [rest]:
                await self._resolve(conn, part, hurry=True)
        except REJECTED as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            half = len(batch) // 2
            await self._resolve(conn, batch[:half], hurry=hurry)
            await self._resolve(conn, batch[half:], hurry=hurry)
        else:
            for (_, future), each in zip(batch, made, strict=True):
                if not future.done():
                    future.set_result(each)

    def _wait_for_keys(self, batch: list[Waiting], held: Collection[str | None]) -> list[Waiting]:
        """Let the jobs of a batch whose keys are held wait for them alone; returns the others."""
        if not held:
            return batch
        for job, future in batch:
            if job.key in held:
                waiter = asyncio.create_task(self._enqueue_alone(job, future), name="howdah enqueue key")
                self._waiters.add(waiter)
                waiter.add_done_callback(self._waiters.discard)
        return [(job, future) for job, future in batch if job.key not in held]

    async def _enqueue_alone(self, job: NewJob, future: asyncio.Future[Enqueued]) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + self._key_wait
        self._held[job.key] += 1
        try:
            try:
                async with asyncio.timeout_at(until):
                    await self._turn.acquire()
            except TimeoutError:
                raise KeyHeld(str(job.key)) from None
            try:
                async with self._reach() as conn:
                    made = await self._wait(conn, job, max(SHORTEST_WAIT, until - clock()))
            finally:
                self._turn.release()
            if not future.done():
                future.set_result(made)
        except Exception as error:
            _fail(future, error)
        except BaseException:
            _fail(future, DatabaseUnreachable("stopped"))
            raise
        finally:
            self._held[job.key] -= 1
            if not self._held[job.key]:
                del self._held[job.key]


def _fail(future: asyncio.Future[Enqueued], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
