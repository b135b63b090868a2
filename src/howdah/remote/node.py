"""A node without a database: registers at a control plane, sends heartbeats, runs workers, drains, deregisters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from howdah import telemetry
from howdah.app import Howdah
from howdah.errors import ConfigError
from howdah.loops import Outage, wait
from howdah.node.heartbeat import HeartbeatThread
from howdah.node.registry import node_name
from howdah.remote import messages as m
from howdah.remote.capabilities import Capabilities
from howdah.remote.client import ControlPlaneClient, ControlPlaneUnreachable, RejectedByServer, UnknownWorker
from howdah.remote.store import LONG_POLL, RemoteStore
from howdah.remote.table import RemoteTableStore
from howdah.version import __version__
from howdah.worker.attempt import Attempt
from howdah.worker.capacity import Slots
from howdah.worker.options import WorkerOptions
from howdah.worker.worker import Worker

log = logging.getLogger("howdah")

MakeClient = Callable[[], ControlPlaneClient]
LEAVE_TIMEOUT = 5.0
"""Seconds for the last heartbeat, and for deregistering."""


class RemoteNode:
    """Runs workers against a control plane. ``start_timeout``: seconds to wait for it at first; ``None``: for ever."""

    def __init__(
        self, app: Howdah, options: WorkerOptions, make: MakeClient, *, start_timeout: float | None = None
    ) -> None:
        self._options = options
        self._make_client = make
        self._start_timeout = start_timeout
        self._capabilities = Capabilities.of(app)
        self.client = make()
        self._heartbeat_client: ControlPlaneClient | None = None
        self._registered: m.RegisterResponse | None = None
        self._register_lock = asyncio.Lock()
        self._reregistering: asyncio.Task[None] | None = None
        self._stores: dict[str, RemoteStore] = {}
        self.workers: dict[str, Worker] = {}
        self._outages: dict[str, Outage] = {}
        self.heartbeat_thread: HeartbeatThread | None = None
        self._stopping = self._stopping_now = False
        self._stop_event = asyncio.Event()

    @property
    def node(self) -> int:
        """Id at the control plane; 0 until it is registered."""
        return self.client.node

    @property
    def lease(self) -> float:
        """Seconds for which leases are valid without a heartbeat."""
        return self._registered.lease if self._registered else self._options.lease

    @property
    def ready(self) -> bool:
        """True while this node claims jobs."""
        return any(not worker.draining for worker in self.workers.values())

    @property
    def running(self) -> list[Attempt]:
        """The attempts running now."""
        return [attempt for worker in list(self.workers.values()) for attempt in worker.running]

    def stop(self, *, now: bool = False) -> None:
        """Drain; ``now``: release everything at once."""
        self._stopping, self._stopping_now = True, self._stopping_now or now
        self._stop_event.set()
        for worker in self.workers.values():
            worker.stop(now=now)

    async def run(self) -> None:
        """Work until :meth:`stop` (or until nothing is left, when draining)."""
        began = time.monotonic()
        try:
            if await self._register_when_reachable():
                await self._work(began)
        finally:
            await self._close()

    # ---------------------------------------------------------------- registration

    async def register_again(self, stale: int) -> None:
        """Register again after the control plane forgot this worker, unless another task has just done so."""
        async with self._register_lock:
            if self.node != stale:
                return
            self._lose_all("the control plane does not know this worker any more")
            if not self._stopping:
                await self._register()
                log.info("registered again, as node %d", self.node)

    async def _register(self) -> None:
        options = self._options
        self._registered = await self.client.register(
            m.RegisterRequest(
                hostname=node_name()[:100],
                kinds=list(self._capabilities.jobs),
                tables=list(self._capabilities.tables),
                queues=list(options.queues) if options.queues is not None else None,
                labels=list(options.labels),
                slots=options.slots,
                version=__version__,
            )
        )
        if self.heartbeat_thread:
            self.heartbeat_thread.node = self.node

    async def _register_when_reachable(self) -> bool:
        """Register as soon as the control plane answers; a rejection is final. Return false if stopped meanwhile."""
        outage = Outage("registration")
        deadline = None if self._start_timeout is None else time.monotonic() + self._start_timeout
        while not self._stopping:
            try:
                await self._register()
            except ControlPlaneUnreachable as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(str(error)) from None
                await wait(self._stop_event, outage.fail(error))
            except (RejectedByServer, UnknownWorker) as error:
                raise ConfigError(f"the control plane at {self.client.server} rejects this worker: {error}") from None
            else:
                outage.heal()
                return True
        return False

    # ---------------------------------------------------------------- heartbeats

    async def _send_heartbeat(self, _session: Any) -> Callable[[], None]:
        """Send a heartbeat with all held jobs; runs in the heartbeat thread, with a client of its own."""
        if self._heartbeat_client is None:
            self._heartbeat_client = self._make_client()
        assert self._registered is not None
        self._heartbeat_client.adopt(self._registered)
        at, node = time.monotonic(), self._heartbeat_client.node
        held = {name: store.held() for name, store in self._stores.items()}
        message = m.HeartbeatRequest(
            held={name: each for name, each in held.items() if each}, running=len(self.running)
        )
        try:
            response = await self._heartbeat_client.send("heartbeat", message, m.HeartbeatResponse)
        except UnknownWorker:
            return lambda: self._register_soon(node)
        response = response or m.HeartbeatResponse(status="idle")
        response.fates = {name: fate for name, fate in response.fates.items() if name in self._stores}
        return lambda: self._apply_heartbeat(response, at)

    async def _close_heartbeat_client(self) -> None:
        if self._heartbeat_client:
            await self._heartbeat_client.close()

    def _apply_heartbeat(self, response: m.HeartbeatResponse, at: float) -> None:
        for name, worker in self.workers.items():
            if name not in response.fates:
                worker.renewed([], at)
        for name, fate in response.fates.items():
            store, worker = self._stores[name], self.workers[name]
            if fate.kept or fate.problem is None:
                worker.renewed(list({held.token for held in fate.kept}), at)
            # A job that was acked after the heartbeat was sent is no longer held, and not lost.
            lost = [(held.token, held.id) for held in fate.lost if store.holds(held.token, held.id)]
            if lost:
                store.forget(lost)
                worker.lose_jobs(lost, "the lease expired and was taken back")
            if fate.cancel:
                worker.cancel(fate.cancel)
            if fate.problem is None:
                self._outages[name].heal()
            else:  # neither renewed nor lost: the worker keeps the jobs until their leases expire
                self._outages[name].fail(ControlPlaneUnreachable(fate.problem))
                worker.stop_unrenewed()
        if response.status == "draining":
            self.asked_to_drain()

    def asked_to_drain(self) -> None:
        """Drain, since the control plane gives this worker no more work."""
        if not self._stopping:
            log.info("the control plane asks node %d to drain", self.node)
            self.stop()

    def _register_soon(self, stale: int) -> None:
        if self._reregistering is None or self._reregistering.done():
            self._reregistering = asyncio.ensure_future(self._try_register_again(stale))

    async def _try_register_again(self, stale: int) -> None:
        try:
            await self.register_again(stale)
        except Exception as error:
            log.warning("could not register again (%s); the next heartbeat tries again", error)

    def _stop_unrenewed(self) -> None:
        for worker in self.workers.values():
            worker.stop_unrenewed()

    def _lose_all(self, reason: str) -> None:
        for name, worker in self.workers.items():
            self._stores[name].forget_all()
            worker.lose(worker.tokens(), reason)

    # ---------------------------------------------------------------- workers

    async def _work(self, began: float) -> None:
        assert self._registered is not None
        options = replace(self._options, lease=self._registered.lease, heartbeat=self._registered.heartbeat)
        tasks: list[asyncio.Task[None]] = []
        try:
            self._start_heartbeats(self._open_stores(options))
            log.info("node %d (%s) works for %s: %d slots", self.node, node_name(), self.client.server, options.slots)
            telemetry.emit("node.start", node=self.node, name=node_name(), queues=options.queues, slots=options.slots)
            tasks += [asyncio.create_task(each.run(), name=f"howdah {name}") for name, each in self.workers.items()]
            await asyncio.gather(*tasks)
        except BaseException:
            self.stop(now=True)
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        finally:
            for store in self._stores.values():
                await store.close()
            await self._leave()
            log.info("node %d stops after %.1f s", self.node, time.monotonic() - began)
            telemetry.emit("node.stop", node=self.node, seconds=time.monotonic() - began)

    def _start_heartbeats(self, heartbeat: float) -> None:
        self.heartbeat_thread = HeartbeatThread(
            None,
            self.node,
            heartbeat=heartbeat,
            renewals=[self._send_heartbeat],
            fail=self._stop_unrenewed,
            close=self._close_heartbeat_client,
        )
        self.heartbeat_thread.start()

    def _open_stores(self, options: WorkerOptions) -> float:
        """Create the stores and their workers; return the heartbeat interval that is short enough for all of them."""
        shared, heartbeat = Slots(options.slots), options.heartbeat
        # A long poll ends well before the lease: a process that was frozen longer would not read the response.
        long_poll = min(LONG_POLL, options.lease / 2) if options.notify else 0.0
        if self._capabilities.jobs:
            self._add(
                m.JOBS, RemoteStore(self, wait=long_poll, poll=options.poll), self._capabilities.jobs, options, shared
            )
        for name, table in self._capabilities.tables.items():
            own = table.options.worker(options)
            own = replace(own, lease=min(own.lease, options.lease))  # the control plane expires leases after this time
            heartbeat = min(heartbeat, own.heartbeat)
            store = RemoteTableStore(self, table.options, table.handler, wait=min(long_poll, own.lease / 2))
            slots = shared if table.options.slots is None else Slots(own.slots)
            self._add(name, store, {name: table.handler}, own, slots)
            store.on_exhausted = self.workers[name].stop
        return heartbeat

    def _add(self, name: str, store: RemoteStore, handlers: Any, options: WorkerOptions, slots: Slots) -> None:
        self._stores[name] = store
        self._outages[name] = Outage(f"heartbeat of {name}")
        self.workers[name] = Worker(store, handlers, options, slots)
        if self._stopping:
            self.workers[name].stop(now=self._stopping_now)

    async def _leave(self) -> None:
        """Stop the heartbeats and deregister."""
        if self.heartbeat_thread:
            self.heartbeat_thread.stop(timeout=0)
            until = time.monotonic() + LEAVE_TIMEOUT
            # Not by join(): signal handlers run in the event loop.
            while self.heartbeat_thread.beating and time.monotonic() < until:
                await wait(asyncio.Event(), 0.02)
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self.client.leave()
        except UnknownWorker:
            pass
        except Exception as error:
            log.warning("could not deregister: %s", error or type(error).__name__)

    async def _close(self) -> None:
        if self._reregistering is not None:
            self._reregistering.cancel()
            await asyncio.gather(self._reregistering, return_exceptions=True)
        await self.client.close()
