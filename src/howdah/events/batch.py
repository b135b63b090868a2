"""A batch of events: runs the handler and moves the checkpoint, in one transaction if the handler takes ``tx``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from howdah import telemetry
from howdah.errors import HowdahError, LeaseLost
from howdah.events.consumer import Consumer
from howdah.events.event import Event, current
from howdah.events.partition import Partition
from howdah.job import Job
from howdah.postgres.pool import is_closed
from howdah.postgres.transaction import transact
from howdah.store import Transaction

GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.AdminShutdownError,
    asyncpg.exceptions.CrashShutdownError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
)
"""Errors of a connection that broke while the handler ran."""
REFUSED = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.InFailedSQLTransactionError,
    asyncpg.RaiseError,
)
"""Errors at commit: a deferred constraint is violated, or the handler swallowed an error."""

NO_ROOM = (asyncpg.DiskFullError, asyncpg.TooManyConnectionsError)
"""Errors of a server out of resources. They are temporary and not counted as failures of the handler."""


class Overran(Exception):
    """A batch exceeded its timeout."""


class Exited(Exception):
    """A handler raised an exception with a meaning of its own: SystemExit would end the process, LeaseLost the loop."""


class Handled(Job, gc=False):
    """An event, or a batch of events, as tracing records it."""

    traces: tuple[str, ...] = ()
    """The events of a whole batch."""


class Batch:
    """Events that one consumer handles together."""

    def __init__(self, consumer: Consumer, partition: Partition, events: Sequence[Event]) -> None:
        self._consumer = consumer
        self._partition = partition
        self.events = events
        self.at = 0
        """The event being handled, or the first that was not."""
        self.handling = False
        """True while the handler runs, and after the batch broke off inside it."""
        self.handled = False
        """True if a handler without a transaction has handled all events: a later failure is not the handler's."""
        self.raised: BaseException | None = None
        """The handler's exception, or the server's error at commit."""

    @property
    def fewer(self) -> int:
        """Return how many events to try next, when it is unknown which of them failed."""
        if 0 < self.at < len(self.events):
            return self.at
        return max(1, len(self.events) // 2) if self.at or self._consumer.takes_batches else 1

    async def run(self, pool: Any, idle: float, settle: Callable[[Any], Awaitable[None]], *, careful: bool) -> None:
        """Handle the events, call ``settle(conn)``, and commit.

        ``careful``: each in a savepoint, up to the first that raises. Those before it are settled. Waiting for a
        connection of the pool does not count against the timeout.
        """
        limit, clock = self._consumer.options.timeout, asyncio.get_running_loop().time

        async def body(tx: Transaction) -> None:
            deadline.reschedule(clock() + limit)
            await self._handle(tx, careful)

        async def finish(conn: Any, _result: bytes | None) -> None:
            await settle(conn)

        try:
            async with asyncio.timeout(None) as deadline:
                if careful or self._consumer.takes_tx:
                    await transact(pool, idle, body, finish)
                else:  # A handler that does not take ``tx`` needs no transaction.
                    deadline.reschedule(clock() + limit)
                    await self._handle(None, careful)
                    deadline.reschedule(None)
                    self.handled = True
                    async with pool.acquire() as conn:
                        deadline.reschedule(clock() + limit)
                        await settle(conn)
        except TimeoutError:
            if not (deadline.expired() and self.handling):
                raise
            self.raised = Overran(f"the batch took longer than {limit:g} s")
            raise self.raised from None
        except REFUSED as error:
            self.raised = self.raised or error
            raise

    async def _handle(self, tx: Transaction | None, careful: bool) -> None:
        self.handling = True
        try:
            await (self._one_by_one(tx) if careful and tx else self._all(tx))
            if tx:
                _check_open(tx)
        except BaseException as error:
            if _is_ours(error):
                raise
            if not (isinstance(error, GONE) or (tx and is_closed(tx.connection))):
                self.raised = error
            if isinstance(error, Exception) and not isinstance(error, LeaseLost):
                raise
            raise Exited from error
        self.handling = False

    async def _all(self, tx: Transaction | None) -> None:
        consumer = self._consumer
        if consumer.takes_batches:
            await self._together(tx)
        elif telemetry.around:
            for event in self.events:
                await self._traced(event, tx)
                self.at += 1
        else:
            call, mark, carry = consumer.call, current.set, telemetry.carried.set
            for event in self.events:
                mark(event)
                carry(event.trace)
                await call(event, tx)
                self.at += 1
        self.at = len(self.events)

    async def _one_by_one(self, tx: Transaction) -> None:
        for event in self.events:
            await tx.execute("savepoint howdah_event")
            try:
                await self._traced(event, tx)
                _check_open(tx)
                await tx.execute("release savepoint howdah_event")
            except BaseException as error:
                if _is_ours(error) or isinstance(error, GONE) or not _is_open(tx):
                    raise
                await tx.execute("rollback to savepoint howdah_event")
                self.raised = error
                return
            self.at += 1

    async def _together(self, tx: Transaction | None) -> None:
        """Handle the whole batch in one call, within the events' trace if they all share one."""
        traces = tuple({event.trace: None for event in self.events if event.trace})
        carried = telemetry.carried.set(traces[0] if len(traces) == 1 else None)
        try:
            with telemetry.surround(self._as_job(self.events[0], traces)):
                await self._consumer.call(self.events, tx)
        finally:
            telemetry.carried.reset(carried)

    async def _traced(self, event: Event, tx: Transaction | None) -> None:
        here, carried = current.set(event), telemetry.carried.set(event.trace)
        try:
            with telemetry.surround(self._as_job(event)):
                await self._consumer.call([event] if self._consumer.takes_batches else event, tx)
        finally:  # Otherwise a later batch in the same task would be recorded as caused by this event.
            current.reset(here)
            telemetry.carried.reset(carried)

    def _as_job(self, event: Event, traces: tuple[str, ...] = ()) -> Job:
        """Return the job that represents it in tracing."""
        return Handled(
            id=event.position,
            traces=traces,
            queue="log",
            kind=self._consumer.name,
            attempt=1,
            max_attempts=self._consumer.options.max_failures,
            token=self._partition.epoch,
            payload=b"{}",
            trace=event.trace,
        )


def _is_ours(error: BaseException) -> bool:
    """Return whether this batch was cancelled here: by its timeout, or because the node stops at once."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _is_open(tx: Transaction) -> bool:
    return not is_closed(tx.connection) and bool(tx.connection.is_in_transaction())


def _check_open(tx: Transaction) -> None:
    """Raise if the handler ended the transaction: the checkpoint would not be committed with its writes."""
    if not _is_open(tx):
        raise HowdahError("the handler ended the transaction, which is not its own; it must not commit or roll back")
