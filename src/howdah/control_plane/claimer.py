"""Claims jobs for all workers with the same filter, one claim at a time, and holds their long polls."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from howdah.job import Job
from howdah.jobs.store import JobStore
from howdah.loops import Outage

CLOSE_TIMEOUT = 1.0
"""Seconds that a running claim has to end when the claimer is closed."""
Limits = frozenset[tuple[str, int]]
"""Most jobs of each queue that a worker has room for."""
NO_LIMITS: Limits = frozenset()


class LongPoll:
    """A claim request of a worker that waits for jobs."""

    def __init__(self, node: int, limit: int, room: Mapping[str, int]) -> None:
        self.node = node
        self.limit = limit
        self.room = room
        self.limits: Limits = frozenset(room.items())
        self.jobs: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()


class JobClaimer:
    """Serves the long polls of one filter in turn. ``may_claim``: false while one of the kinds is on hold."""

    def __init__(self, store: JobStore, may_claim: Callable[[], bool]) -> None:
        self.store = store
        self._may_claim = may_claim
        self._polls: deque[LongPoll] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._outage = Outage("claim for the fleet")
        self._empty_for: set[Limits] = set()
        """Limits under which a claim found nothing since the last wake-up."""
        self.used_at = time.monotonic()

    @property
    def idle(self) -> bool:
        """True if no long poll is open."""
        return not self._polls

    async def claim(self, node: int, limit: int, room: Mapping[str, int], timeout: float) -> list[Job]:
        """Claim up to ``limit`` jobs, waiting up to ``timeout`` seconds for the first one."""
        self.used_at = time.monotonic()
        if timeout <= 0:
            return await self._claim_now(node, limit, room) if self._may_claim() else []
        poll = LongPoll(node, limit, room)
        self._polls.append(poll)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="howdah long polls")
        if not self._is_empty_for(poll):
            self.store.wake()  # there may be jobs that did not fit the limits of the polls before this one
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(poll.jobs)
        except TimeoutError:
            return poll.jobs.result() if poll.jobs.done() else []
        except asyncio.CancelledError:
            if poll.jobs.done():  # the worker disconnected while its jobs arrived
                self._release_soon(node, poll.jobs)
            raise
        finally:
            if poll in self._polls:
                self._polls.remove(poll)
            poll.jobs.cancel()  # a claim that is running for this poll then releases its jobs

    def cancel_waits(self, node: int | None = None) -> None:
        """End the long polls of a node, or all of them, with an empty response."""
        for poll in [each for each in self._polls if node in (None, each.node)]:
            self._polls.remove(poll)
            if not poll.jobs.done():
                poll.jobs.set_result([])
        if not self._polls:
            self.store.wake()  # ends the rest of the serving task

    async def close(self) -> None:
        """End all long polls and wait for a running claim."""
        self.cancel_waits()
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=CLOSE_TIMEOUT)
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        await self.store.close()

    async def _claim_now(self, node: int, limit: int, room: Mapping[str, int]) -> list[Job]:
        """Claim without waiting. A cancelled request does not cancel the claim: that would break the connection."""
        claiming = asyncio.create_task(self.store.claim_for(node, limit, room), name="howdah claim")
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._release_soon(node, claiming)
            raise

    def _release_soon(self, node: int, claiming: asyncio.Future[list[Job]]) -> None:
        task = asyncio.create_task(self._release_claimed(node, claiming), name="howdah release")
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release_claimed(self, node: int, claiming: asyncio.Future[list[Job]]) -> None:
        try:
            jobs = await claiming
        except Exception as error:
            self._outage.fail(error)
        else:
            await self._release(node, jobs)

    async def _serve(self) -> None:
        while self._polls:
            poll = self._polls[0]
            try:
                jobs = await self.store.claim_for(poll.node, poll.limit, poll.room) if self._may_claim() else []
                self._outage.heal()
                if not jobs:
                    await self._rest(poll)
            except Exception as error:
                self._empty_for.clear()
                await asyncio.sleep(self._outage.fail(error))
                continue
            if jobs:
                self._empty_for.clear()
                if poll in self._polls:
                    self._polls.remove(poll)
                if poll.jobs.done():  # the poll ended meanwhile
                    await self._release(poll.node, jobs)
                else:
                    poll.jobs.set_result(jobs)

    async def _rest(self, poll: LongPoll) -> None:
        """Wait for a wake-up after an empty claim, unless a poll with other limits may still find jobs."""
        self._empty_for.add(poll.limits)
        self._polls.rotate(-1)
        if NO_LIMITS not in self._empty_for:
            for _ in range(len(self._polls)):
                if not self._is_empty_for(self._polls[0]):
                    return
                self._polls.rotate(-1)
        await self.store.rest()
        self._empty_for.clear()

    def _is_empty_for(self, poll: LongPoll) -> bool:
        """Return whether a claim without limits, or with the limits of this poll, has just found nothing."""
        return NO_LIMITS in self._empty_for or poll.limits in self._empty_for

    async def _release(self, node: int, jobs: Sequence[Job]) -> None:
        try:
            await self.store.release_for(node, list({job.token for job in jobs}))
        except Exception as error:
            self._outage.fail(error)  # no worker renews these leases, so they expire
