"""Parked events: set aside because their consumer failed on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from howdah import telemetry
from howdah.events.batch import Batch
from howdah.events.consumer import Consumer
from howdah.events.event import Decoder, Event, events_of
from howdah.events.partition import Partition, lost
from howdah.postgres.transaction import transact
from howdah.redact import traceback_of
from howdah.retry import decision
from howdah.store import Transaction


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One parked event."""

    consumer: str
    part: int
    position: int
    stream: str | None
    """``None``: the event was deleted."""
    version: int | None
    type: str | None
    at: datetime | None
    data: Any
    error: str
    message: str
    traceback: str
    failures: int
    parked_at: datetime
    wanted_at: datetime | None
    """Time at which a retry was requested."""


MOST = 100
"""Parked events retried in one round."""


class ParkedEvents:
    """Parks events of one partition, and retries those requested through the admin."""

    def __init__(
        self,
        pool: Any,
        sql: Mapping[str, str],
        consumer: Consumer,
        partition: Partition,
        *,
        node: int,
        decoder: Decoder,
        idle: float,
    ) -> None:
        self._pool = pool
        self._sql = sql
        self._consumer = consumer
        self._partition = partition
        self._node = node
        self._decoder = decoder
        self._idle = idle

    async def park(
        self, position: int, words: tuple[str, str, str], failures: int, settle: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Set an event aside and move the checkpoint past it, in one transaction."""

        async def body(tx: Transaction) -> None:
            await tx.execute(self._sql["park"], *self._partition.key, position, *words, failures)

        await transact(self._pool, self._idle, body, lambda conn, _result: settle(conn))

    async def retry(self) -> None:
        """Retry the requested events; those that fail again stay parked."""
        while True:
            async with self._pool.acquire() as conn:
                rows = await conn.fetch(self._sql["parked_to_retry"], *self._partition.key, MOST, self._partition.run)
            for event in events_of(rows, self._decoder):
                await self._retry(event)
            if len(rows) < MOST:
                return

    async def _retry(self, event: Event) -> None:
        partition, batch = self._partition, Batch(self._consumer, self._partition, [event])

        async def unpark(conn: Any) -> None:
            if not await conn.fetchval(
                self._sql["unpark"], *partition.key, self._node, partition.epoch, event.position, partition.run
            ):
                raise lost(partition)

        try:
            await batch.run(self._pool, self._idle, unpark, careful=False)
        except Exception:
            if batch.raised is None:
                raise
            if not await self._repark(event, batch.raised):
                return
            telemetry.emit(
                "consumer.park",
                consumer=partition.consumer,
                part=partition.part,
                position=event.position,
                failures=1,
                error=batch.raised,
            )

    async def _repark(self, event: Event, error: BaseException) -> bool:
        """Keep an event parked that failed again; return whether it was still parked.

        It is not inserted again: its partition may have moved and the new owner may have handled it, or it was dropped.
        """
        partition, found = self._partition, decision(error)
        words = (found.error, found.message, traceback_of(error))
        async with self._pool.acquire() as conn:
            kept = await conn.fetchval(
                self._sql["repark"], *partition.key, self._node, partition.epoch, event.position, partition.run, *words
            )
        return kept is not None
