"""A node with a database, from start to end: register, heartbeat, work, maintenance, drain, deregister."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import asyncpg

from howdah import telemetry
from howdah.events.consumers import NodeConsumers
from howdah.loops import end_within, every
from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import Retention
from howdah.maintenance.scheduler import Scheduler
from howdah.node.heartbeat import HeartbeatThread, NodeState, Renewal
from howdah.node.registry import Registration, node_name
from howdah.node.source import NodeContext, OpenSource, Source
from howdah.postgres import migrate
from howdah.postgres.database import BROKEN, Database
from howdah.version import __version__
from howdah.webhooks.relay import Relay
from howdah.worker.attempt import Attempt
from howdah.worker.capacity import Slots
from howdah.worker.drain import DrainGroup
from howdah.worker.options import WorkerOptions
from howdah.worker.worker import Worker

log = logging.getLogger("howdah")

RESET_EVERY = 2.0
START_TRIES = 4
"""Tries of each step of the start while the connection breaks."""
START_PAUSE = 0.5
"""Seconds between two tries."""

T = TypeVar("T")
STOP_TIMEOUT = 2.0
"""Seconds for the loops to end, and then for the connections: a silent server must not hold up the exit."""


class DatabaseNode:
    """Runs the workers of all sources, the consumers, the heartbeat thread and the maintenance loops of one node."""

    def __init__(
        self,
        database: Database,
        sources: Sequence[Source],
        options: WorkerOptions,
        *,
        retention: Retention | None = None,
        scheduler: Callable[[], Scheduler] | None = None,
        upkeep: bool = True,
        relay: Relay | None = None,
        crew: Callable[[NodeContext, DrainGroup], NodeConsumers] | None = None,
    ) -> None:
        self._database = database
        self._sources = sources
        self._options = options
        self._retention = retention or Retention()
        self._scheduler = scheduler
        self._with_upkeep = upkeep
        self._relay = relay
        self._make_crew = crew
        self.node = 0
        self.workers: list[Worker] = []
        self.open: list[OpenSource] = []
        self.renewals: list[Renewal] = []
        self.crew: NodeConsumers | None = None
        self.heartbeat_thread: HeartbeatThread | None = None
        self._slots = Slots(options.slots)
        self._stopping = self._now = False

    @property
    def ready(self) -> bool:
        """True if this node claims jobs."""
        return any(not worker.draining for worker in self.workers)

    @property
    def running(self) -> list[Attempt]:
        """The running attempts of all sources."""
        return [attempt for worker in self.workers for attempt in worker.running]

    @property
    def incomplete(self) -> bool:
        """True if it ended before all outcomes were recorded and all leases released: the database did not answer."""
        return any(worker.incomplete for worker in self.workers)

    def stop(self, *, now: bool = False) -> None:
        """Drain; ``now``: release all jobs at once."""
        self._stopping, self._now = True, self._now or now
        for worker in self.workers:
            worker.stop(now=now)
        if self.crew:
            self.crew.stop(now=now)

    async def run_until_cancelled(self) -> None:
        """Run; when cancelled, drain first."""
        running = asyncio.create_task(self.run())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    async def run(self) -> None:
        """Run until :meth:`stop`, or with ``drain`` until no job is left."""
        began = time.monotonic()
        await retry_if_broken(lambda: migrate.check(self._database))
        await self._database.check(writes=True)
        options = self._options
        queues = list(options.queues) if options.queues is not None else None
        kinds = [kind for source in self._sources for kind in source.handlers]
        registration = Registration(self._database, version=__version__, kinds=kinds, options=options)
        self.node = await retry_if_broken(registration.insert)
        # the statements of handlers may take as long as their jobs
        pool = await self._database.pool(max(4, min(options.slots, 20)), command_timeout=None)
        stopped = asyncio.Event()
        loops: list[asyncio.Task[None]] = []
        try:
            await self._open(
                NodeContext(
                    database=self._database,
                    registration=registration,
                    pool=pool,
                    options=options,
                    state=self._state,
                    drain=self._drain,
                )
            )
            log.info("node %d (%s) starts: %d slots, queues %s", self.node, node_name(), options.slots, _listed(queues))
            telemetry.emit("node.start", node=self.node, name=node_name(), queues=queues, slots=options.slots)
            self._start_loops(loops, stopped)
            await self._work()
        finally:
            if self.heartbeat_thread:
                self.heartbeat_thread.stop(timeout=STOP_TIMEOUT / 2)
            stopped.set()
            await end_within(STOP_TIMEOUT, *loops)
            await self._deregister(pool, registration)
            seconds = time.monotonic() - began
            log.info("node %d stops after %.1f s", self.node, seconds)
            telemetry.emit("node.stop", node=self.node, seconds=seconds)

    async def _open(self, context: NodeContext) -> None:
        drain_group = DrainGroup(len(self._sources) + bool(self._make_crew))
        for source in self._sources:
            opened = await retry_if_broken(partial(source.open, context))
            self.open.append(opened)
            slots = self._slots if source.shares_slots else None
            worker = Worker(opened.store, source.handlers, source.options(self._options), slots, drain_group)
            if self._stopping:
                worker.stop(now=self._now)
            self.workers.append(worker)
            self.renewals.append(opened.renewal(worker))
        if self._make_crew:
            self.crew = self._make_crew(context, drain_group)
            await retry_if_broken(self.crew.open)
            if self._stopping:
                self.crew.stop(now=self._now)

    def _start_loops(self, loops: list[asyncio.Task[None]], stopped: asyncio.Event) -> None:
        """Start the heartbeat thread, the listeners and the maintenance loops."""
        self.heartbeat_thread = HeartbeatThread(
            self._database,
            self.node,
            heartbeat=min(source.options(self._options).heartbeat for source in self._sources),
            renewals=self.renewals,
            fail=self._stop_unrenewed,
        )
        self.heartbeat_thread.start()
        for source, opened in zip(self._sources, self.open, strict=True):
            loops.append(asyncio.create_task(opened.listen(stopped), name=f"howdah listen {source.name}"))
            if self._with_upkeep:
                seconds = min(RESET_EVERY, source.options(self._options).lease / 4)
                reset = every(seconds, opened.reset, name=f"reset of {source.name}", stop=stopped)
                loops.append(asyncio.create_task(reset, name=f"howdah reset {source.name}"))
        if self._with_upkeep:
            scheduler = self._scheduler() if self._scheduler else None
            maintenance = MaintenanceLoops(self._database, retention=self._retention, scheduler=scheduler)
            loops.append(asyncio.create_task(maintenance.run(stopped), name="howdah upkeep"))
            if self._relay:
                loops.append(asyncio.create_task(self._relay.run(stopped), name="howdah notices"))

    async def _work(self) -> None:
        """Run all workers and the consumers; if one raises, stop the others at once."""
        tasks = [asyncio.create_task(worker.run(), name="howdah worker") for worker in self.workers]
        if self.crew:
            tasks.append(asyncio.create_task(self.crew.run(), name="howdah consumers"))
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            self.stop(now=True)
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def _state(self) -> NodeState:
        running = len(self.running)
        draining = bool(self.workers) and not self.ready
        state = "draining" if draining else "busy" if running else "idle"
        lost = any(source.wakeups_lost for source in self.open) or (self.crew is not None and self.crew.wakeups_lost)
        return NodeState(state, running, lost, self._unleased_slots())

    def _unleased_slots(self) -> int:
        """Return the slots that are not taken by a leased job, one slot each."""
        jobs = [worker for source, worker in zip(self._sources, self.workers, strict=False) if source.name == "jobs"]
        leased = sum(not attempt.finished for worker in jobs for attempt in worker.running)
        return max(0, self._slots.taken - leased)

    def _drain(self) -> None:
        if not self._stopping:
            log.info("node %d has been asked to drain", self.node)
            self.stop()

    def _stop_unrenewed(self) -> None:
        for worker in self.workers:
            worker.stop_unrenewed()

    async def _deregister(self, pool: asyncpg.Pool, registration: Registration) -> None:
        crew = [asyncio.create_task(self.crew.close())] if self.crew else []
        await end_within(2 * STOP_TIMEOUT, *crew)
        try:
            await asyncio.wait_for(registration.remove(), STOP_TIMEOUT)
        except Exception as error:
            log.warning("could not mark the node as offline: %s", str(error) or type(error).__name__)
        await end_within(STOP_TIMEOUT, *(asyncio.create_task(opened.close()) for opened in self.open))
        pool.terminate()


async def retry_if_broken(start: Callable[[], Awaitable[T]]) -> T:
    """Run a step of the start, and again if the connection breaks: that must not end the process."""
    for _ in range(START_TRIES - 1):
        try:
            return await start()
        except BROKEN as error:
            log.warning("a connection broke during the start (%s); trying again", error)
            await asyncio.sleep(START_PAUSE)
    return await start()


def _listed(queues: Sequence[str] | None) -> str:
    return "all" if queues is None else ", ".join(queues)
