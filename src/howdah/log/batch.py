"""Batch: events through their handler, and the checkpoint behind them, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from howdah import telemetry
from howdah.errors import LeaseLost
from howdah.job import Job
from howdah.log.consumer import Consumer
from howdah.log.event import Event, current
from howdah.log.share import Share
from howdah.pg.transact import transact
from howdah.store import Transaction


class Overran(Exception):
    """A batch took longer than it may."""


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
        self.raised: Exception | None = None
        """What the handler raised."""

    async def run(self, pool: Any, idle: float, settle: Callable[[Any], Awaitable[None]], *, careful: bool) -> None:
        """Handle them, then ``settle(conn)``, and commit.

        ``careful``: each within a savepoint, up to the first that raises. Those before it are settled.
        """

        async def body(tx: Transaction) -> None:
            self.handling = True
            try:
                await (self._one_by_one(tx) if careful else self._all(tx))
            except Exception as error:
                self.raised = error
                raise
            self.handling = False

        async def finish(conn: Any, _result: bytes | None) -> None:
            await settle(conn)

        try:
            async with asyncio.timeout(self._consumer.options.timeout) as deadline:
                await transact(pool, idle, body, finish)
        except TimeoutError:
            if not (deadline.expired() and self.handling):
                raise
            self.raised = Overran(f"the batch took longer than {self._consumer.options.timeout:g} s")
            raise self.raised from None

    async def _all(self, tx: Transaction) -> None:
        consumer = self._consumer
        if consumer.takes_batches:
            await consumer.call(self.events, tx)
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
            except Exception as error:
                if tx.connection.is_closed():
                    raise
                await tx.execute("rollback to savepoint howdah_event")
                self.raised = error
                return
            await tx.execute("release savepoint howdah_event")
            self.at += 1

    async def _traced(self, event: Event, tx: Transaction) -> None:
        current.set(event)
        telemetry.carried.set(event.trace)
        with telemetry.surround(self._as_job(event)):
            await self._consumer.call([event] if self._consumer.takes_batches else event, tx)

    def _as_job(self, event: Event) -> Job:
        """How tracing sees it."""
        return Job(
            id=event.position,
            queue="log",
            kind=self._consumer.name,
            attempt=1,
            max_attempts=self._consumer.options.max_failures,
            token=self._share.epoch,
            payload=b"{}",
            trace=event.trace,
        )


def lost(share: Share) -> LeaseLost:
    """What is raised when a share turns out to be somebody else's."""
    return LeaseLost(f"consumer {share.name} is no longer ours, or was moved")
