"""Batch: events through their handler, and the checkpoint behind them, in one transaction if the handler takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from howdah import telemetry
from howdah.errors import HowdahError, LeaseLost
from howdah.job import Job
from howdah.log.consumer import Consumer
from howdah.log.event import Event, current
from howdah.log.share import Share
from howdah.pg.pool import is_closed
from howdah.pg.transact import transact
from howdah.store import Transaction

GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.AdminShutdownError,
    asyncpg.exceptions.CrashShutdownError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
)
"""Errors of a connection that went away under the handler."""
REFUSED = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.InFailedSQLTransactionError,
    asyncpg.RaiseError,
)
"""What a server says that does not commit: a deferred constraint is violated, or the handler swallowed an error."""

NO_ROOM = (asyncpg.DiskFullError, asyncpg.TooManyConnectionsError)
"""What a server says that is full. No handler is to blame for that, and it passes."""


class Overran(Exception):
    """A batch took longer than it may."""


class Exited(Exception):
    """A handler raised what means something to its runner: SystemExit would end the process, LeaseLost the runner."""


class Handled(Job, gc=False):
    """An event, or a batch of them, as tracing sees it."""

    traces: tuple[str, ...] = ()
    """Those of a whole batch."""


class Batch:
    """Some events on their way through one consumer."""

    def __init__(self, consumer: Consumer, share: Share, events: Sequence[Event]) -> None:
        self._consumer = consumer
        self._share = share
        self.events = events
        self.at = 0
        """The event being handled, or the first that was not."""
        self.handling = False
        """Whether the handler is at work, or was when it broke off."""
        self.handled = False
        """Whether a handler without a transaction is done with all of them: what fails now is not its fault."""
        self.raised: BaseException | None = None
        """What the handler raised, or why the server refused what it did."""

    @property
    def fewer(self) -> int:
        """How many events to try next, when nobody knows which of them is to blame."""
        if 0 < self.at < len(self.events):
            return self.at
        return max(1, len(self.events) // 2) if self.at or self._consumer.takes_batches else 1

    async def run(self, pool: Any, idle: float, settle: Callable[[Any], Awaitable[None]], *, careful: bool) -> None:
        """Handle them, then ``settle(conn)``, and commit.

        ``careful``: each within a savepoint, up to the first that raises. Those before it are settled. Waiting for a
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
                else:  # a handler that does not take the transaction needs none
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
        """The whole batch at once; it carries a trace on if all its events share it."""
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
        finally:  # a later batch in the same task must not take itself for a part of this event
            current.reset(here)
            telemetry.carried.reset(carried)

    def _as_job(self, event: Event, traces: tuple[str, ...] = ()) -> Job:
        """How tracing sees it."""
        return Handled(
            id=event.position,
            traces=traces,
            queue="log",
            kind=self._consumer.name,
            attempt=1,
            max_attempts=self._consumer.options.max_failures,
            token=self._share.epoch,
            payload=b"{}",
            trace=event.trace,
        )


def _is_ours(error: BaseException) -> bool:
    """Whether we cancelled it: the batch took too long, or the node stops now."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _is_open(tx: Transaction) -> bool:
    return not is_closed(tx.connection) and bool(tx.connection.is_in_transaction())


def _check_open(tx: Transaction) -> None:
    """Refuse a batch whose transaction was ended inside it: its checkpoint would no longer belong to its writes."""
    if not _is_open(tx):
        raise HowdahError("the handler ended the transaction, which is not its own; it must not commit or roll back")


def lost(share: Share) -> LeaseLost:
    """What is raised when a share turns out to be somebody else's."""
    return LeaseLost(f"consumer {share.name} is no longer ours, or was moved")
