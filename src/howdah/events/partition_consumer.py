"""Consumes one partition on this node, batch after batch, until it is stopped, halted or lost to another node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from howdah import telemetry
from howdah.errors import ConsecutiveFailures, LeaseLost, Poison
from howdah.events.batch import NO_ROOM, Batch, Overran
from howdah.events.consumer import Consumer
from howdah.events.dispatcher import Dispatcher, PollInterval
from howdah.events.event import Decoder, Event
from howdah.events.parked import ParkedEvents
from howdah.events.partition import RESTARTED, Checkpoint, CheckpointRejected, Partition, lost
from howdah.events.read import END, EventPage, EventPrefetch, is_restarted
from howdah.loops import Outage, wait
from howdah.redact import traceback_of
from howdah.retry import decision, retry_after

BREAKS = 3
"""Connections that may break in a row while the same handler runs, before it counts as the handler's failure."""
SAVE_AFTER = 0.25
"""Seconds a checkpoint may stay unsaved while only events out of scope are passed."""


class PartitionConsumer:
    """The consume loop of one partition."""

    def __init__(
        self,
        consumer: Consumer,
        partition: Partition,
        *,
        node: int,
        pool: Any,
        sql: Mapping[str, str],
        decoder: Decoder,
        dispatcher: Dispatcher,
        idle: float,
    ) -> None:
        self.consumer, self.partition = consumer, partition
        self._options = consumer.options
        self._node, self._pool, self._sql = node, pool, sql
        self._dispatcher, self._idle = dispatcher, idle
        self._prefetch = EventPrefetch(pool, sql, consumer, partition, decoder)
        self._parked = ParkedEvents(pool, sql, consumer, partition, node=node, decoder=decoder, idle=idle)
        self._labels = {"consumer": partition.consumer, "part": partition.part}
        self._poll_interval = PollInterval(self._options.poll, self._options.max_poll, self._options.pause)
        self._checkpoint = Checkpoint(sql, partition, node)
        self._outage = Outage(f"consumer {partition.name}")
        self._stop = asyncio.Event()
        self._wanted = asyncio.Event()
        if partition.wanted:
            self._wanted.set()
        self.position = partition.position
        """The position in memory; the stored one may be behind while only events out of scope are passed."""
        # The node stopped because of this consumer and was started again, so the failures count from zero.
        self._failures = 0 if self._options.on_failure == "stop_worker" else partition.failures
        self._batch_limit: int | None = 1 if partition.failures else None
        """Largest size of the next batch, after a failure."""
        self._breaks = 0
        self._resting = False
        """True while it waits to retry a failed event."""
        self._cut = False
        self.ended: str | None = None
        """Why it ended."""

    @property
    def caught_up(self) -> bool:
        """True if it has nothing to do now."""
        if self._dispatcher.frontier.run != self.partition.run:
            return False
        if self.ended is not None or self._resting:
            return True
        return self.position >= self._end() and self._all_saved and not self._wanted.is_set()

    @property
    def _all_saved(self) -> bool:
        return self._checkpoint.position == self.position

    def stop(self) -> None:
        """Finish the running batch, then end."""
        self._stop.set()

    def cut(self, task: asyncio.Task[None]) -> None:
        """Roll back the running batch and end; what its handler raises from now on is not counted."""
        self._cut = True
        task.cancel()

    def retry_parked(self) -> None:
        """Retry parked events in the next turn."""
        self._wanted.set()

    async def run(self) -> None:
        """Consume until stopped; also returns when the partition is lost or halted."""
        telemetry.emit("consumer.start", **self._labels, position=self.position)
        try:
            while not self._stop.is_set():
                await self._turn()
            await self._save_at_last()
            self.ended = "stopped"
        except LeaseLost:
            self.ended = "no longer ours"
        except CheckpointRejected as end:
            self.ended = str(end)
        finally:
            await self._prefetch.close()
            telemetry.emit("consumer.stop", **self._labels, reason=self.ended or "broken off")

    async def _rest(self, seconds: float) -> None:
        """Wait for new events or for the poll interval, whichever ends first."""
        if not self._all_saved:
            seconds = min(seconds, SAVE_AFTER)
        upto = self.partition.upto
        beyond = self.position if upto is None or self.position < upto else END
        if seconds > 0:
            if await self._dispatcher.wait(beyond, seconds, self._stop, self._wanted):
                self._poll_interval.woken()
            elif not self._stop.is_set():
                await self._dispatcher.poll()

    async def _turn(self) -> None:
        """Handle one batch, if there is one, and wait for the next."""
        try:
            await self._rest(await self._step())
        except (LeaseLost, ConsecutiveFailures, CheckpointRejected):
            raise
        except Exception as error:  # The database is unreachable; that is not counted as the consumer's failure.
            await wait(self._stop, self._outage.fail(error))
            if is_restarted(error):
                await self._pool.expire_connections()  # Some of the pool's connections may lead to the old server.
                raise CheckpointRejected(RESTARTED) from None
        else:
            self._outage.heal()

    async def _step(self) -> float:
        if self._wanted.is_set():
            self._wanted.clear()
            await self._parked.retry()
        end = self._end()
        if self._dispatcher.frontier.run != self.partition.run:
            # The position in memory may be beyond any position this server has given out.
            raise CheckpointRejected(RESTARTED)
        if end <= self.position:
            await self._save(after=SAVE_AFTER)
            return self._poll_interval.nothing()
        page = await self._prefetch.read(self.position, end, self._batch_limit or self._options.batch)
        if not page.events:
            self.position = page.to
            await self._save(after=SAVE_AFTER)
            return 0.0 if page.full else self._poll_interval.nothing()
        if page.full and not self._batch_limit:
            self._prefetch.read_ahead(page.to, end, self._options.batch)
        if not await self._apply(page):
            return 0.0
        self._batch_limit = None
        pause = self._poll_interval.some(full=page.full)
        if page.full:
            await wait(self._stop, pause)
            return 0.0
        return pause

    def _end(self) -> int:
        """Return the last position it may consume now."""
        safe = self._dispatcher.frontier.safe
        return safe if self.partition.upto is None else min(safe, self.partition.upto)

    # ---------------------------------------------------------------- a batch and its checkpoint

    async def _apply(self, page: EventPage) -> bool:
        """Handle a page; return whether all of it was committed."""
        batch = Batch(self.consumer, self.partition, page.events)
        try:
            await self._commit(batch, page.to, careful=False)
        except (LeaseLost, *NO_ROOM):
            raise
        except Exception as error:
            if batch.raised is None and not self._count_break(batch):
                raise
            cause = batch.raised or error
        else:
            return True
        if self._cut:
            raise asyncio.CancelledError from cause
        await self._find_failing(batch, page.to, cause)
        return False

    async def _find_failing(self, batch: Batch, to: int, error: BaseException) -> None:
        """After a rollback: find the event that fails, and commit those before it."""
        if len(batch.events) == 1:
            await self._record_failure(batch.events[0], error)
            return
        if not isinstance(error, Overran):  # Running them one by one would take as long.
            batch = Batch(self.consumer, self.partition, batch.events)
            try:
                await self._commit(batch, to, careful=True)
            except (LeaseLost, *NO_ROOM):
                raise
            except Exception:
                if batch.raised is None and not self._count_break(batch):
                    raise
            else:
                if batch.raised is not None and not isinstance(batch.raised, NO_ROOM):
                    await self._record_failure(batch.events[batch.at], batch.raised)
                return
        self._batch_limit = batch.fewer

    def _count_break(self, batch: Batch) -> bool:
        """Count a broken connection. Several in a row during the same handler count as the handler's failure."""
        if batch.handled or not (batch.handling or batch.at):
            return False
        self._breaks += 1
        self._batch_limit = batch.fewer
        return self._breaks >= BREAKS

    async def _commit(self, batch: Batch, to: int, *, careful: bool) -> None:
        """Handle a batch and move the checkpoint in one transaction."""
        began = time.monotonic()

        async def move(conn: Any) -> None:
            nonlocal to
            if batch.raised is not None:  # Careful mode: settle the events before the failing one.
                to = batch.events[batch.at - 1].position if batch.at else self._checkpoint.position
            if to != self._checkpoint.position:
                await self._checkpoint.move(conn, to, batch.at)

        await batch.run(self._pool, self._idle, move, careful=careful)
        if to != self._checkpoint.position:
            self.position = to
        self._checkpoint.commit(to)
        if batch.at:
            self._failures = self._breaks = 0
            seconds = self._checkpoint.moved_at - began
            telemetry.emit("consumer.batch", **self._labels, events=batch.at, position=to, seconds=seconds)

    async def _save(self, *, after: float = 0.0) -> None:
        """Save the checkpoint when only events out of scope were passed."""
        if not self._all_saved and time.monotonic() - self._checkpoint.moved_at >= after:
            async with self._pool.acquire() as conn:
                await self._checkpoint.move(conn, self.position, 0)
            self._checkpoint.commit(self.position)

    async def _save_at_last(self) -> None:
        """Save the checkpoint at the end. If that fails, the next owner scans the same events out of scope again."""
        try:
            await self._save()
        except LeaseLost:
            raise
        except Exception as error:
            self._outage.fail(error)

    # ---------------------------------------------------------------- failures

    async def _record_failure(self, event: Event, error: BaseException) -> None:
        """Count a failure; after ``max_failures`` apply the consumer's ``on_failure`` policy."""
        options, partition = self._options, self.partition
        self._batch_limit = 1
        found = decision(error)
        failures = options.max_failures if isinstance(found.by, Poison) else self._failures + 1
        over = failures >= options.max_failures
        words = (found.error, found.message, traceback_of(error))
        if over and options.on_failure == "park":
            to = event.position
            await self._parked.park(to, words, failures, lambda conn: self._checkpoint.move(conn, to, 0))
            self._checkpoint.commit(to)
            self.position = to
            self._failures, self._batch_limit = 0, None
            telemetry.emit("consumer.park", **self._labels, position=event.position, failures=failures, error=error)
            return
        halted = over and options.on_failure == "halt"
        # If this statement fails, the database is the cause and no failure is counted.
        async with self._pool.acquire() as conn:
            values = (partition.epoch, failures, halted, event.position, *words, partition.run)
            noted = await conn.fetchval(self._sql["record_failure"], *partition.key, self._node, *values)
        if not noted:
            raise lost(partition)
        self._failures = failures
        asked = retry_after(found.by)
        pause = options.retry.delay(failures) if asked is None else asked
        facts = self._labels | {"position": event.position, "failures": failures, "error": error}
        telemetry.emit("consumer.fail", **facts, delay=None if over else pause)
        if halted:
            telemetry.emit("consumer.halt", **facts)
            raise CheckpointRejected("halted")
        if over:
            raise ConsecutiveFailures(
                f"consumer {partition.name} failed {failures} times in a row at position {event.position}:"
                f" {words[0]}: {words[1]}"
            ) from error
        self._resting = True
        await wait(self._stop, pause)
        self._resting = False
