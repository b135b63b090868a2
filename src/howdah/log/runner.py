"""Runner: one share followed on this node, batch after batch, until it is stopped, halted or no longer ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from howdah import telemetry
from howdah.errors import ConsecutiveFailures, LeaseLost, Poison
from howdah.log.batch import NO_ROOM, Batch, Overran, lost
from howdah.log.checkpoint import RESTARTED, Checkpoint, Ended
from howdah.log.consumer import Consumer
from howdah.log.dispatch import Dispatcher
from howdah.log.event import Decoder, Event
from howdah.log.follow import Follower, Page
from howdah.log.pace import Pace
from howdah.log.parked import Parked
from howdah.log.read import END, is_restarted
from howdah.log.share import Share
from howdah.retry import retry_after
from howdah.scrub import describe
from howdah.service import Outage, wait

BREAKS = 3
"""Connections that may break under a handler, one after the other, before it is to blame."""
SAVE_AFTER = 0.25
"""Seconds a checkpoint may lag behind while only events out of scope pass by."""


class Runner:
    """The loop of one share."""

    def __init__(
        self,
        consumer: Consumer,
        share: Share,
        *,
        node: int,
        pool: Any,
        sql: Mapping[str, str],
        decoder: Decoder,
        dispatcher: Dispatcher,
        idle: float,
    ) -> None:
        self.consumer = consumer
        self.share = share
        self._options = consumer.options
        self._node, self._pool, self._sql = node, pool, sql
        self._dispatcher = dispatcher
        self._idle = idle
        self._follower = Follower(pool, sql, consumer, share, decoder)
        self._parked = Parked(pool, sql, consumer, share, node=node, decoder=decoder, idle=idle)
        self._who = {"consumer": share.consumer, "part": share.part}
        self._pace = Pace(self._options.poll, self._options.max_poll, self._options.pause)
        self._checkpoint = Checkpoint(sql, share, node)
        self._outage = Outage(f"consumer {share.name}")
        self._stop = asyncio.Event()
        self._wanted = asyncio.Event()
        if share.wanted:
            self._wanted.set()
        self.position = share.position
        """How far it looked; what is stored may be behind while only events out of scope pass by."""
        # a node that stopped because of it was started again, so it begins anew
        self._failures = 0 if self._options.on_failure == "stop_worker" else share.failures
        self._narrow: int | None = 1 if share.failures else None
        """How many events the next batch may have, after a failure."""
        self._breaks = 0
        self._resting = False
        """Whether it waits before it tries a failed event again."""
        self.ended: str | None = None
        """Why it no longer follows."""

    @property
    def caught_up(self) -> bool:
        """Whether there is nothing for it to do now."""
        if self._dispatcher.frontier.run != self.share.run:
            return False
        if self.ended is not None or self._resting:
            return True
        return self.position >= self._end() and self._all_saved and not self._wanted.is_set()

    @property
    def _all_saved(self) -> bool:
        return self._checkpoint.position == self.position

    def stop(self) -> None:
        """Finish the batch at hand, then end."""
        self._stop.set()

    def retry_parked(self) -> None:
        """Somebody wants parked events to be tried again."""
        self._wanted.set()

    async def run(self) -> None:
        """Follow until stopped; returns also when the share is lost or halted."""
        telemetry.emit("consumer.start", **self._who, position=self.position)
        try:
            while not self._stop.is_set():
                await self._turn()
            await self._save_at_last()
            self.ended = "stopped"
        except LeaseLost:
            self.ended = "no longer ours"
        except Ended as end:
            self.ended = str(end)
        finally:
            await self._follower.close()
            telemetry.emit("consumer.stop", **self._who, reason=self.ended or "broken off")

    async def _rest(self, seconds: float) -> None:
        """Wait until there is something new, or for so long; then look by itself."""
        if not self._all_saved:
            seconds = min(seconds, SAVE_AFTER)
        upto = self.share.upto
        beyond = self.position if upto is None or self.position < upto else END
        if seconds > 0:
            if await self._dispatcher.wait(beyond, seconds, self._stop, self._wanted):
                self._pace.woken()
            elif not self._stop.is_set():
                await self._dispatcher.look()

    async def _turn(self) -> None:
        """One batch, if there is one, and the wait for the next."""
        try:
            await self._rest(await self._step())
        except (LeaseLost, ConsecutiveFailures, Ended):
            raise
        except Exception as error:  # the database is away; nothing of this is the consumer's fault
            await wait(self._stop, self._outage.fail(error))
            if is_restarted(error):
                await self._pool.expire_connections()  # some of them may lead to the old server
                raise Ended(RESTARTED) from None
        else:
            self._outage.heal()

    async def _step(self) -> float:
        if self._wanted.is_set():
            self._wanted.clear()
            await self._parked.retry()
        end = self._end()
        if self._dispatcher.frontier.run != self.share.run:
            raise Ended(RESTARTED)  # the position in memory may be beyond what this server has ever given out
        if end <= self.position:
            await self._save(after=SAVE_AFTER)
            return self._pace.nothing()
        page = await self._follower.read(self.position, end, self._narrow or self._options.batch)
        if not page.events:
            self.position = page.to
            await self._save(after=SAVE_AFTER)
            return 0.0 if page.full else self._pace.nothing()
        if page.full and not self._narrow:
            self._follower.read_ahead(page.to, end, self._options.batch)
        if not await self._apply(page):
            return 0.0
        self._narrow = None
        pause = self._pace.some(full=page.full)
        if page.full:
            await wait(self._stop, pause)
            return 0.0
        return pause

    def _end(self) -> int:
        """How far it may go now."""
        safe = self._dispatcher.frontier.safe
        return safe if self.share.upto is None else min(safe, self.share.upto)

    # ---------------------------------------------------------------- a batch and its checkpoint

    async def _apply(self, page: Page) -> bool:
        """Handle a page; returns whether all of it went through."""
        batch = Batch(self.consumer, self.share, page.events)
        try:
            await self._commit(batch, page.to, careful=False)
        except (LeaseLost, *NO_ROOM):
            raise
        except Exception as error:
            if batch.raised is None and not self._suspect(batch):
                raise
            blamed = batch.raised or error
        else:
            return True
        await self._find(batch, page.to, blamed)
        return False

    async def _find(self, batch: Batch, to: int, error: BaseException) -> None:
        """A batch was rolled back: find the event that is to blame, and let those before it through."""
        if len(batch.events) == 1:
            await self._blame(batch.events[0], error)
            return
        if not isinstance(error, Overran):  # to run them one by one would take as long
            batch = Batch(self.consumer, self.share, batch.events)
            try:
                await self._commit(batch, to, careful=True)
            except (LeaseLost, *NO_ROOM):
                raise
            except Exception:
                if batch.raised is None and not self._suspect(batch):
                    raise
            else:
                if batch.raised is not None and not isinstance(batch.raised, NO_ROOM):
                    await self._blame(batch.events[batch.at], batch.raised)
                return
        self._narrow = batch.fewer

    def _suspect(self, batch: Batch) -> bool:
        """Count a broken connection. After several in a row under the same handler, the handler is to blame."""
        if batch.handled or not (batch.handling or batch.at):
            return False
        self._breaks += 1
        self._narrow = batch.fewer
        return self._breaks >= BREAKS

    async def _commit(self, batch: Batch, to: int, *, careful: bool) -> None:
        """Handle a batch and move the checkpoint in one transaction."""
        began = time.monotonic()

        async def settle(conn: Any) -> None:
            nonlocal to
            if batch.raised is not None:  # careful: settle what came before the culprit
                to = batch.events[batch.at - 1].position if batch.at else self._checkpoint.position
            if to != self._checkpoint.position:
                await self._checkpoint.settle(conn, to, batch.at)

        await batch.run(self._pool, self._idle, settle, careful=careful)
        if to != self._checkpoint.position:
            self.position = to
        self._checkpoint.commit(to)
        if batch.at:
            self._failures = self._breaks = 0
            seconds = self._checkpoint.moved_at - began
            telemetry.emit("consumer.batch", **self._who, events=batch.at, position=to, seconds=seconds)

    async def _save(self, *, after: float = 0.0) -> None:
        """Write the checkpoint when only events out of scope have passed."""
        if not self._all_saved and time.monotonic() - self._checkpoint.moved_at >= after:
            async with self._pool.acquire() as conn:
                await self._checkpoint.settle(conn, self.position, 0)
            self._checkpoint.commit(self.position)

    async def _save_at_last(self) -> None:
        """The same when it ends. What cannot be saved is passed over again, by whoever follows."""
        try:
            await self._save()
        except LeaseLost:
            raise
        except Exception as error:
            self._outage.fail(error)

    # ---------------------------------------------------------------- failures

    async def _blame(self, event: Event, error: BaseException) -> None:
        """Count a failure; after too many of them do as the consumer's policy says."""
        options, share = self._options, self.share
        self._narrow = 1
        failures = options.max_failures if isinstance(error, Poison) else self._failures + 1
        over = failures >= options.max_failures
        words = describe(error)
        if over and options.on_failure == "park":
            to = event.position
            await self._parked.park(to, words, failures, lambda conn: self._checkpoint.settle(conn, to, 0))
            self._checkpoint.commit(to)
            self.position = to
            self._failures, self._narrow = 0, None
            telemetry.emit("consumer.park", **self._who, position=event.position, failures=failures, error=error)
            return
        halted = over and options.on_failure == "halt"
        async with self._pool.acquire() as conn:  # when this fails it was the database, and nothing is counted
            noted = await conn.fetchval(
                self._sql["fault"],
                *share.key,
                self._node,
                share.epoch,
                failures,
                halted,
                event.position,
                *words,
                share.run,
            )
        if not noted:
            raise lost(share)
        self._failures = failures
        asked = retry_after(error)
        pause = options.retry.delay(failures) if asked is None else asked
        facts = self._who | {"position": event.position, "failures": failures, "error": error}
        telemetry.emit("consumer.fail", **facts, delay=None if over else pause)
        if halted:
            telemetry.emit("consumer.halt", **facts)
            raise Ended("halted")
        if over:
            raise ConsecutiveFailures(
                f"consumer {share.name} failed {failures} times in a row at position {event.position}:"
                f" {words[0]}: {words[1]}"
            ) from error
        self._resting = True
        await wait(self._stop, pause)
        self._resting = False
