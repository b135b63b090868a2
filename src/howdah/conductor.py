"""Conductor: one node from start to end: register, beat, work, tidy, drain, say goodbye."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import asyncpg

from howdah import telemetry
from howdah.front import Front, OpenFront, Site
from howdah.log.crew import Crew
from howdah.node.beat import Pulse
from howdah.node.heart import Beat, Heart
from howdah.node.registry import Registration, node_name
from howdah.notices.relay import Relay
from howdah.pg import migrate
from howdah.pg.database import BROKEN, Database
from howdah.service import end_within, every
from howdah.upkeep.loops import Upkeep
from howdah.upkeep.pruner import Retention
from howdah.upkeep.scheduler import Scheduler
from howdah.version import __version__
from howdah.work.execute import Attempt
from howdah.work.options import WorkerOptions
from howdah.work.quiet import Quiet
from howdah.work.slots import Slots
from howdah.work.worker import Worker

log = logging.getLogger("howdah")

RESET_EVERY = 2.0
STARTS = 4
"""Tries of each step of the start."""
START_PAUSE = 0.5
"""Seconds between two of them."""

T = TypeVar("T")
LEAVE_WITHIN = 2.0
"""Seconds each of the loops, and then the connections, have to end: a server that is silent must not keep the node."""


class Conductor:
    """Wires workers to their fronts, the heart and the upkeep. The only place that knows them all."""

    def __init__(
        self,
        database: Database,
        fronts: Sequence[Front],
        options: WorkerOptions,
        *,
        retention: Retention | None = None,
        scheduler: Callable[[], Scheduler] | None = None,
        upkeep: bool = True,
        relay: Relay | None = None,
        crew: Callable[[Site, Quiet], Crew] | None = None,
    ) -> None:
        self._database = database
        self._fronts = fronts
        self._options = options
        self._retention = retention or Retention()
        self._scheduler = scheduler
        self._with_upkeep = upkeep
        self._relay = relay
        self._make_crew = crew
        self.node = 0
        self.workers: list[Worker] = []
        self.open: list[OpenFront] = []
        self.beats: list[Beat] = []
        self.crew: Crew | None = None
        self.heart: Heart | None = None
        self._slots = Slots(options.slots)
        self._stopping = self._now = False

    @property
    def ready(self) -> bool:
        """Whether this node is taking work."""
        return any(not worker.draining for worker in self.workers)

    @property
    def running(self) -> list[Attempt]:
        """The attempts running now, of every front."""
        return [attempt for worker in self.workers for attempt in worker.running]

    @property
    def silent(self) -> bool:
        """Whether the database stopped answering before everything was recorded and handed back."""
        return any(worker.silent for worker in self.workers)

    def stop(self, *, now: bool = False) -> None:
        """Drain; ``now``: hand everything back at once."""
        self._stopping, self._now = True, self._now or now
        for worker in self.workers:
            worker.stop(now=now)
        if self.crew:
            self.crew.stop(now=now)

    async def run_until_cancelled(self) -> None:
        """Work; when cancelled, finish what runs first."""
        running = asyncio.create_task(self.run())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    async def run(self) -> None:
        """Work until :meth:`stop` (or until nothing is left, when draining)."""
        began = time.monotonic()
        await again_if_broken(lambda: migrate.check(self._database))
        await self._database.check(writes=True)
        options = self._options
        queues = list(options.queues) if options.queues is not None else None
        kinds = [kind for front in self._fronts for kind in front.handlers]
        registration = Registration(self._database, version=__version__, kinds=kinds, options=options)
        self.node = await again_if_broken(registration.insert)
        # the statements of handlers may take as long as their jobs
        pool = await self._database.pool(max(4, min(options.slots, 20)), command_timeout=None)
        over = asyncio.Event()
        beside: list[asyncio.Task[None]] = []
        try:
            await self._open(
                Site(
                    database=self._database,
                    registration=registration,
                    pool=pool,
                    options=options,
                    pulse=self._pulse,
                    drain=self._drain,
                )
            )
            log.info("node %d (%s) starts: %d slots, queues %s", self.node, node_name(), options.slots, _say(queues))
            telemetry.emit("node.start", node=self.node, name=node_name(), queues=queues, slots=options.slots)
            self._start_beside(beside, over)
            await self._work()
        finally:
            if self.heart:
                self.heart.stop(patience=LEAVE_WITHIN / 2)
            over.set()
            await end_within(LEAVE_WITHIN, *beside)
            await self._goodbye(pool, registration)
            seconds = time.monotonic() - began
            log.info("node %d stops after %.1f s", self.node, seconds)
            telemetry.emit("node.stop", node=self.node, seconds=seconds)

    async def _open(self, site: Site) -> None:
        quiet = Quiet(len(self._fronts) + bool(self._make_crew))
        for front in self._fronts:
            opened = await again_if_broken(partial(front.open, site))
            self.open.append(opened)
            slots = self._slots if front.shares_slots else None
            worker = Worker(opened.store, front.handlers, front.options(self._options), slots, quiet)
            if self._stopping:
                worker.stop(now=self._now)
            self.workers.append(worker)
            self.beats.append(opened.beat(worker))
        if self._make_crew:
            self.crew = self._make_crew(site, quiet)
            await again_if_broken(self.crew.open)
            if self._stopping:
                self.crew.stop(now=self._now)

    def _start_beside(self, beside: list[asyncio.Task[None]], over: asyncio.Event) -> None:
        """The heart, the listeners and the upkeep run beside the work."""
        self.heart = Heart(
            self._database,
            self.node,
            heartbeat=min(front.options(self._options).heartbeat for front in self._fronts),
            beats=self.beats,
            fail=self._lose_expired,
        )
        self.heart.start()
        for front, opened in zip(self._fronts, self.open, strict=True):
            beside.append(asyncio.create_task(opened.listen(over), name=f"howdah listen {front.name}"))
            if self._with_upkeep:
                seconds = min(RESET_EVERY, front.options(self._options).lease / 4)
                reset = every(seconds, opened.reset, name=f"reset of {front.name}", stop=over)
                beside.append(asyncio.create_task(reset, name=f"howdah reset {front.name}"))
        if self._with_upkeep:
            scheduler = self._scheduler() if self._scheduler else None
            upkeep = Upkeep(self._database, retention=self._retention, scheduler=scheduler)
            beside.append(asyncio.create_task(upkeep.run(over), name="howdah upkeep"))
            if self._relay:
                beside.append(asyncio.create_task(self._relay.run(over), name="howdah notices"))

    async def _work(self) -> None:
        """Run every worker, and the consumers; if one breaks, the others drain."""
        tasks = [asyncio.create_task(worker.run(), name="howdah worker") for worker in self.workers]
        if self.crew:
            tasks.append(asyncio.create_task(self.crew.run(), name="howdah consumers"))
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            self.stop(now=True)
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def _pulse(self) -> Pulse:
        running = len(self.running)
        draining = bool(self.workers) and not self.ready
        state = "draining" if draining else "busy" if running else "idle"
        troubled = any(front.troubled for front in self.open) or (self.crew is not None and self.crew.troubled)
        return Pulse(state, running, troubled, self._beside())

    def _beside(self) -> int:
        """Slots taken by other than jobs under a lease, one each."""
        jobs = [worker for front, worker in zip(self._fronts, self.workers, strict=False) if front.name == "jobs"]
        leased = sum(not attempt.over for worker in jobs for attempt in worker.running)
        return max(0, self._slots.taken - leased)

    def _drain(self) -> None:
        if not self._stopping:
            log.info("node %d was asked to drain", self.node)
            self.stop()

    def _lose_expired(self) -> None:
        for worker in self.workers:
            worker.lose_expired()

    async def _goodbye(self, pool: asyncpg.Pool, registration: Registration) -> None:
        crew = [asyncio.create_task(self.crew.close())] if self.crew else []
        await end_within(2 * LEAVE_WITHIN, *crew)
        try:
            await asyncio.wait_for(registration.remove(), LEAVE_WITHIN)
        except Exception as error:
            log.warning("could not say goodbye: %s", str(error) or type(error).__name__)
        await end_within(LEAVE_WITHIN, *(asyncio.create_task(opened.close()) for opened in self.open))
        pool.terminate()


async def again_if_broken(start: Callable[[], Awaitable[T]]) -> T:
    """Do a step of the start; a connection that breaks meanwhile is no reason to end the process."""
    for _ in range(STARTS - 1):
        try:
            return await start()
        except BROKEN as error:
            log.warning("the start is held up (%s); trying again", error)
            await asyncio.sleep(START_PAUSE)
    return await start()


def _say(queues: Sequence[str] | None) -> str:
    return "all" if queues is None else ", ".join(queues)
