"""Line: workers that can do the same things stand in one line, and one claim after another serves it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from howdah.job import Job
from howdah.jobs.store import JobStore
from howdah.service import Outage

PATIENCE = 1.0
"""Seconds a claim that is under way has at the end."""
Limits = frozenset[tuple[str, int]]
NO_LIMITS: Limits = frozenset()


class Waiter:
    """Somebody in line."""

    def __init__(self, node: int, most: int, room: Mapping[str, int]) -> None:
        self.node = node
        self.most = most
        self.room = room
        self.limits: Limits = frozenset(room.items())
        self.jobs: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()


class Line:
    """The workers that can do the same things, served in turn."""

    def __init__(self, store: JobStore, may: Callable[[], bool]) -> None:
        self.store = store
        self._may = may
        self._waiting: deque[Waiter] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._handing: set[asyncio.Task[None]] = set()
        self._outage = Outage("claim for the fleet")
        self._tried: set[Limits] = set()
        """The limits under which there was nothing since somebody last rang."""
        self.used = time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether nobody is in line."""
        return not self._waiting

    async def claim(self, node: int, most: int, room: Mapping[str, int], wait: float) -> list[Job]:
        """Up to ``most`` jobs, within ``wait`` seconds."""
        self.used = time.monotonic()
        if wait <= 0:
            return await self._claim_now(node, most, room) if self._may() else []
        waiter = Waiter(node, most, room)
        self._waiting.append(waiter)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="howdah line")
        if not self._is_dry(waiter):
            self.store.wake()  # what there is may not have been for those who stood here before
        try:
            async with asyncio.timeout(wait):
                return await asyncio.shield(waiter.jobs)
        except TimeoutError:
            return waiter.jobs.result() if waiter.jobs.done() else []
        except asyncio.CancelledError:
            if waiter.jobs.done():  # they came as it went
                self._hand_back_soon(node, waiter.jobs)
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            waiter.jobs.cancel()  # so that whoever is just claiming for it hands the jobs back

    def turn_away(self, node: int | None = None) -> None:
        """Let those in line go with nothing: all of them, or one node."""
        for waiter in [each for each in self._waiting if node in (None, each.node)]:
            self._waiting.remove(waiter)
            if not waiter.jobs.done():
                waiter.jobs.set_result([])
        if not self._waiting:
            self.store.wake()  # nobody is left to rest for

    async def close(self) -> None:
        """Let everybody go, and finish what is under way."""
        self.turn_away()
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=PATIENCE)
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        await self.store.close()

    async def _claim_now(self, node: int, most: int, room: Mapping[str, int]) -> list[Job]:
        """A claim that is carried through even if nobody wants it any more: cut off, it would break the connection."""
        claiming = asyncio.create_task(self.store.claim(most, room, node=node), name="howdah claim")
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._hand_back_soon(node, claiming)
            raise

    def _hand_back_soon(self, node: int, claiming: asyncio.Future[list[Job]]) -> None:
        task = asyncio.create_task(self._hand_back_what(node, claiming), name="howdah hand back")
        self._handing.add(task)
        task.add_done_callback(self._handing.discard)

    async def _hand_back_what(self, node: int, claiming: asyncio.Future[list[Job]]) -> None:
        try:
            jobs = await claiming
        except Exception as error:
            self._outage.fail(error)
        else:
            await self._hand_back(node, jobs)

    async def _serve(self) -> None:
        while self._waiting:
            waiter = self._waiting[0]
            try:
                jobs = await self.store.claim(waiter.most, waiter.room, node=waiter.node) if self._may() else []
                self._outage.heal()
                if not jobs:
                    await self._rest(waiter)
            except Exception as error:
                self._tried.clear()
                await asyncio.sleep(self._outage.fail(error))
                continue
            if jobs:
                self._tried.clear()
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                if waiter.jobs.done():  # it has gone meanwhile
                    await self._hand_back(waiter.node, jobs)
                else:
                    waiter.jobs.set_result(jobs)

    async def _rest(self, waiter: Waiter) -> None:
        """There was nothing for the first in line: wait for somebody to ring, unless another has room for more."""
        self._tried.add(waiter.limits)
        self._waiting.rotate(-1)
        if NO_LIMITS not in self._tried:
            for _ in range(len(self._waiting)):
                if not self._is_dry(self._waiting[0]):
                    return
                self._waiting.rotate(-1)
        await self.store.rest()
        self._tried.clear()

    def _is_dry(self, waiter: Waiter) -> bool:
        """Whether it is known that there is nothing for somebody: nobody without limits found anything, or its like."""
        return NO_LIMITS in self._tried or waiter.limits in self._tried

    async def _hand_back(self, node: int, jobs: Sequence[Job]) -> None:
        try:
            await self.store.release(list({job.token for job in jobs}), node=node)
        except Exception as error:
            self._outage.fail(error)  # nobody renews them: they run out by themselves
