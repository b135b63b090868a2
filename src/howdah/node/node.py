"""A node from start to stop: register, open its parts, heartbeat and loops, work, drain, close, deregister.

The parts differ: a node with a database, a node behind a control plane (:mod:`howdah.remote.node`), and the control
plane itself (:mod:`howdah.control_plane.server`). Their order is the same, and only here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Generic

from howdah import telemetry
from howdah.loops import end_within
from howdah.node.heartbeat import HeartbeatThread, NodeState, Renewal
from howdah.node.parts import Context, Loop, NodeContext, NodeService, OpenSource, Registry, Source, periodic
from howdah.node.registry import node_name, retry_if_broken
from howdah.worker.attempt import Attempt, slots_used
from howdah.worker.capacity import Slots
from howdah.worker.drain import DrainGroup
from howdah.worker.options import WorkerOptions
from howdah.worker.worker import Worker

log = logging.getLogger("howdah")

RESET_EVERY = 2.0
"""Seconds between two resets of expired leases, at most."""
LOOPS_TIMEOUT = 2.0
"""Seconds for the loops to end: a silent server must not hold up the exit."""
SERVICES_TIMEOUT = 4.0
"""Seconds for the services to close."""
SOURCES_TIMEOUT = 2.0
"""Seconds for the connections of the sources to close."""


class Node(Generic[Context]):
    """Runs the workers of all sources, the services, the heartbeat thread and the loops of one process."""

    def __init__(
        self,
        registry: Registry[Context],
        sources: Sequence[Source[Context]],
        options: WorkerOptions,
        *,
        services: Sequence[Callable[[Context], NodeService]] = (),
        loops: Callable[[], Sequence[Loop]] = tuple,
        resets: bool = True,
        loops_timeout: float = LOOPS_TIMEOUT,
        observed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.registry = registry
        self.sources = sources
        self._options = options
        self._make_services = services
        self._make_loops = loops
        self._resets = resets
        self._loops_timeout = loops_timeout
        self._observed = observed
        """Makes a context manager that is entered while the node runs."""
        self.workers: list[Worker] = []
        self.open: list[OpenSource] = []
        self.renewals: list[Renewal] = []
        self.services: list[NodeService] = []
        self.heartbeat_thread: HeartbeatThread | None = None
        self._slots = Slots(options.slots)
        self._stopping = asyncio.Event()
        self._now = False

    @property
    def node(self) -> int:
        """Its id; 0 until it is registered."""
        return self.registry.node

    @property
    def lease(self) -> float:
        """Seconds for which leases are valid without a heartbeat."""
        return self._options.lease

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
        """True if it ended before all outcomes were recorded and all leases released: the store did not answer."""
        return any(worker.incomplete for worker in self.workers)

    def stop(self, *, now: bool = False) -> None:
        """Drain; ``now``: release all jobs at once."""
        self._now = self._now or now
        self._stopping.set()
        for worker in self.workers:
            worker.stop(now=now)
        for service in self.services:
            service.stop(now=now)

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
        with self._observed():
            async with self.started():
                await self._work()

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Register, open all parts, and run heartbeat and loops while the block lasts; then close and deregister."""
        began = time.monotonic()
        try:
            context = await self.registry.register(self._context())
            if context is None:
                yield
                return
            loops: list[asyncio.Task[None]] = []
            stopped = asyncio.Event()
            try:
                await self._open(context)
                self._announce(context.options)
                self._start_heartbeat(context.options)
                loops += [asyncio.create_task(each.run(stopped), name=each.name) for each in self._loops(context)]
                yield
            finally:
                await self._close(loops, stopped)
                if self.node:
                    log.info("node %d stops after %.1f s", self.node, time.monotonic() - began)
                    telemetry.emit("node.stop", node=self.node, seconds=time.monotonic() - began)
        finally:
            await self.registry.close()

    def _context(self) -> NodeContext:
        return NodeContext(
            options=self._options,
            kinds=[kind for source in self.sources for kind in source.handlers],
            stopping=self._stopping,
            state=self._state,
            drain=self._drain,
            drain_group=DrainGroup(len(self.sources) + len(self._make_services)),
        )

    async def _open(self, context: Context) -> None:
        for source in self.sources:
            opened = await retry_if_broken(partial(source.open, context))
            self.open.append(opened)
            slots = self._slots if source.shares_slots else None
            drain_group = context.drain_group if self.registry.drain_together else None
            worker = Worker(opened.store, source.handlers, source.options(context.options), slots, drain_group)
            if self._stopping.is_set():
                worker.stop(now=self._now)
            self.workers.append(worker)
            renewal = opened.renewal(worker)
            if renewal not in self.renewals:
                self.renewals.append(renewal)
        for make in self._make_services:
            service = make(context)
            self.services.append(service)
            await retry_if_broken(service.open)
            if self._stopping.is_set():
                service.stop(now=self._now)

    def _announce(self, options: WorkerOptions) -> None:
        if self.node:
            queues = list(options.queues) if options.queues is not None else None
            listed = "all" if queues is None else ", ".join(queues)
            name, activity = node_name(), self.registry.activity
            log.info("node %d (%s) %s: %d slots, queues %s", self.node, name, activity, options.slots, listed)
            telemetry.emit("node.start", node=self.node, name=name, queues=queues, slots=options.slots)

    def _start_heartbeat(self, options: WorkerOptions) -> None:
        if self.renewals:
            self.heartbeat_thread = HeartbeatThread(
                self.registry.connect,
                lambda: self.node,
                heartbeat=min(source.options(options).heartbeat for source in self.sources),
                renewals=self.renewals,
                fail=self._stop_unrenewed,
            )
            self.heartbeat_thread.start()

    def _loops(self, context: Context) -> list[Loop]:
        loops: list[Loop] = []
        for source, opened in zip(self.sources, self.open, strict=True):
            loops.append(Loop(name=f"howdah listen {source.name}", run=opened.listen))
            if self._resets:
                seconds = min(RESET_EVERY, source.options(context.options).lease / 4)
                loops.append(periodic(seconds, opened.reset, name=f"reset of {source.name}"))
        return [*loops, *self._make_loops()]

    async def _work(self) -> None:
        """Run all workers and services; if one raises, stop the others at once."""
        tasks = [asyncio.create_task(worker.run(), name="howdah worker") for worker in self.workers]
        tasks += [asyncio.create_task(service.run(), name="howdah service") for service in self.services]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            self.stop(now=True)
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _close(self, loops: Sequence[asyncio.Task[None]], stopped: asyncio.Event) -> None:
        if self.heartbeat_thread:
            await self.heartbeat_thread.end(self.registry.heartbeat_timeout)
        stopped.set()
        await end_within(self._loops_timeout, *loops)
        await end_within(SERVICES_TIMEOUT, *(asyncio.create_task(each.close()) for each in self.services))
        await self.registry.deregister()
        await end_within(SOURCES_TIMEOUT, *(asyncio.create_task(each.close()) for each in self.open))

    def _state(self) -> NodeState:
        running = slots_used(self.running)
        draining = bool(self.workers) and not self.ready
        state = "draining" if draining else "busy" if running else "idle"
        lost = any(each.wakeups_lost for each in self.open) or any(each.wakeups_lost for each in self.services)
        return NodeState(state, running, lost, self._unleased_slots())

    def _unleased_slots(self) -> int:
        """Return the slots that are not taken by a leased job, one slot each; below 0 if batches share slots."""
        jobs = [worker for source, worker in zip(self.sources, self.workers, strict=False) if source.name == "jobs"]
        leased = sum(not attempt.finished for worker in jobs for attempt in worker.running)
        return self._slots.taken - leased - sum(worker.gathering() for worker in jobs)

    def _drain(self) -> None:
        if not self._stopping.is_set():
            log.info("node %d has been asked to drain", self.node)
            self.stop()

    def _stop_unrenewed(self) -> None:
        for worker in self.workers:
            worker.stop_unrenewed()
