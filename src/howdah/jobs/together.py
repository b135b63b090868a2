"""Together: enqueue calls made at the same time travel as one batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from howdah.errors import DatabaseUnreachable, KeyHeld
from howdah.jobs.bulk import CHUNK
from howdah.jobs.new import Enqueued, NewJob
from howdah.pg.reach import Reach

REFUSED = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.RaiseError,
    asyncpg.DeadlockDetectedError,
    asyncpg.exceptions.ProgramLimitExceededError,
)
"""Errors that one job of a batch may cause. The batch is halved until that job is alone."""
MOST_WAITERS = 4
"""Jobs of one process that wait at the same time for a key that another open transaction holds."""

Waiting = tuple[NewJob, asyncio.Future[Enqueued]]
Send = Callable[[Any, Sequence[NewJob]], Awaitable[list[Enqueued]]]


class Together:
    """Gathers jobs while the batch before them is under way.

    ``send`` enqueues all of a batch or none. ``wait`` enqueues one job whose key is held by another open transaction;
    it is called beside the batches, so that no other job waits for that key.
    """

    def __init__(
        self, reach: Callable[[], Reach], send: Send, wait: Callable[[Any, NewJob], Awaitable[Enqueued]]
    ) -> None:
        self._reach = reach
        self._send = send
        self._wait = wait
        self._waiting: list[Waiting] = []
        self._flush: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(MOST_WAITERS)

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._waiting and not self._waiters and (self._flush is None or self._flush.done())

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one job with whatever else is enqueued now."""
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._send_waiting(), name="howdah enqueue")
        return await future

    async def _send_waiting(self) -> None:
        """Send what has gathered; while it is on its way the next batch gathers."""
        while self._waiting:
            batch: list[Waiting] = []
            try:
                async with self._reach() as conn:
                    while self._waiting:
                        batch, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
                        await self._settle(conn, batch)
                        await asyncio.sleep(0)  # a caller that waited for this may have another one for this connection
            except BaseException as error:
                if not batch:  # there was no connection
                    batch, self._waiting = self._waiting, []
                for _, future in batch:
                    _fail(future, error if isinstance(error, Exception) else DatabaseUnreachable("stopped"))
                if not isinstance(error, Exception):
                    raise

    async def _settle(self, conn: Any, batch: list[Waiting]) -> None:
        """Enqueue a batch and tell every caller; what is refused is told to its own caller only."""
        try:
            made = await self._send(conn, [job for job, _ in batch])
        except KeyHeld as error:
            for job, future in batch:
                if job.key == error.key:
                    self._wait_for_key(job, future)
            if rest := [(job, future) for job, future in batch if job.key != error.key]:
                await self._settle(conn, rest)
        except REFUSED as error:
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            half = len(batch) // 2
            await self._settle(conn, batch[:half])
            await self._settle(conn, batch[half:])
        else:
            for (_, future), each in zip(batch, made, strict=True):
                if not future.done():
                    future.set_result(each)

    def _wait_for_key(self, job: NewJob, future: asyncio.Future[Enqueued]) -> None:
        waiter = asyncio.create_task(self._enqueue_alone(job, future), name="howdah enqueue key")
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)

    async def _enqueue_alone(self, job: NewJob, future: asyncio.Future[Enqueued]) -> None:
        try:
            async with self._turn, self._reach() as conn:
                made = await self._wait(conn, job)
            if not future.done():
                future.set_result(made)
        except Exception as error:
            _fail(future, error)
        except BaseException:
            _fail(future, DatabaseUnreachable("stopped"))
            raise


def _fail(future: asyncio.Future[Enqueued], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
