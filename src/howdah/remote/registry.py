"""Registration at a control plane: registers a node without a database, sends its heartbeats, deregisters it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from howdah.errors import ConfigError
from howdah.loops import Outage, wait
from howdah.node.heartbeat import LeaseHolder, Renewal
from howdah.node.parts import NodeContext
from howdah.node.registry import node_name
from howdah.remote import messages as m
from howdah.remote.client import ControlPlaneClient, ControlPlaneUnreachable, RejectedByServer, UnknownWorker
from howdah.remote.store import RemoteStore
from howdah.version import __version__
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

MakeClient = Callable[[], ControlPlaneClient]
LEAVE_TIMEOUT = 5.0
"""Seconds for the last heartbeat, and for deregistering."""


@dataclass(frozen=True, slots=True)
class RenewedStore:
    """A store and its worker, whose leases the heartbeats renew."""

    store: RemoteStore
    worker: LeaseHolder
    outage: Outage


class RemoteRegistry:
    """The registration of this process at a control plane."""

    drain_together = False  # an idle worker would send claims until the last one is idle
    heartbeat_timeout = LEAVE_TIMEOUT

    def __init__(
        self, make: MakeClient, *, kinds: Sequence[str], tables: Sequence[str], start_timeout: float | None
    ) -> None:
        self._kinds = kinds
        self._tables = tables
        self._start_timeout = start_timeout
        self.connect = make
        self.client = make()
        self.registered: m.RegisterResponse | None = None
        self._context: NodeContext | None = None
        self._lock = asyncio.Lock()
        self._reregistering: asyncio.Task[None] | None = None
        self._stores: dict[str, RenewedStore] = {}

    @property
    def node(self) -> int:
        """The id at the control plane; 0 until it is registered."""
        return self.client.node

    @property
    def activity(self) -> str:
        """The verb of the log line at the start, such as "starts"."""
        return f"works for {self.client.server}"

    async def register(self, context: NodeContext) -> NodeContext | None:
        """Register as soon as the control plane answers; a rejection is final. Return ``None`` if stopped meanwhile."""
        self._context = context
        outage = Outage("registration")
        deadline = None if self._start_timeout is None else time.monotonic() + self._start_timeout
        while not context.stopping.is_set():
            try:
                registered = await self._register(context.options)
            except ControlPlaneUnreachable as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(str(error)) from None
                await wait(context.stopping, outage.fail(error))
            except (RejectedByServer, UnknownWorker) as error:
                raise ConfigError(f"the control plane at {self.client.server} rejects this worker: {error}") from None
            else:
                outage.heal()
                options = replace(context.options, lease=registered.lease, heartbeat=registered.heartbeat)
                return replace(context, options=options)
        return None

    async def register_again(self, stale: int) -> None:
        """Register again after the control plane forgot this worker, unless another task has just done so."""
        assert self._context is not None
        async with self._lock:
            if self.node != stale:
                return
            for each in self._stores.values():
                each.store.forget_all()
                each.worker.lose(each.worker.tokens(), "the control plane does not know this worker any more")
            if not self._context.stopping.is_set():
                await self._register(self._context.options)
                log.info("registered again, as node %d", self.node)

    def asked_to_drain(self) -> None:
        """Drain, since the control plane gives this worker no more work."""
        assert self._context is not None
        self._context.drain()

    async def deregister(self) -> None:
        """Release what the workers did not take, and leave."""
        for each in self._stores.values():
            await each.store.close()
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self.client.leave()
        except UnknownWorker:
            pass
        except Exception as error:
            log.warning("could not deregister: %s", error or type(error).__name__)

    async def close(self) -> None:
        """Close the client."""
        if self._reregistering is not None:
            self._reregistering.cancel()
            await asyncio.gather(self._reregistering, return_exceptions=True)
        await self.client.close()

    async def _register(self, options: WorkerOptions) -> m.RegisterResponse:
        request = m.RegisterRequest(
            hostname=node_name()[:100],
            kinds=list(self._kinds),
            tables=list(self._tables),
            queues=list(options.queues) if options.queues is not None else None,
            labels=list(options.labels),
            slots=options.slots,
            version=__version__,
        )
        self.registered = await self.client.register(request)
        return self.registered

    # ---------------------------------------------------------------- heartbeats

    def add(self, name: str, store: RemoteStore, worker: LeaseHolder) -> Renewal:
        """Add a store and its worker to the heartbeats; return the function that sends them, one for all stores."""
        self._stores[name] = RenewedStore(store, worker, Outage(f"heartbeat of {name}"))
        return self._send_heartbeat

    async def _send_heartbeat(self, client: ControlPlaneClient) -> Callable[[], None]:
        """Send a heartbeat with all held jobs; runs in the heartbeat thread, with its client."""
        assert self.registered is not None
        assert self._context is not None
        client.adopt(self.registered)
        at, node = time.monotonic(), client.node
        held = {name: each.store.held() for name, each in self._stores.items()}
        message = m.HeartbeatRequest(
            held={name: each for name, each in held.items() if each}, running=self._context.state().running
        )
        try:
            response = await client.send("heartbeat", message, m.HeartbeatResponse)
        except UnknownWorker:
            return lambda: self._register_soon(node)
        response = response or m.HeartbeatResponse(status="idle")
        response.fates = {name: fate for name, fate in response.fates.items() if name in self._stores}
        return lambda: self._apply_heartbeat(response, at)

    def _apply_heartbeat(self, response: m.HeartbeatResponse, at: float) -> None:
        for name, each in self._stores.items():
            if name not in response.fates:
                each.worker.renewed([], at)
        for name, fate in response.fates.items():
            renewed = self._stores[name]
            store, worker, outage = renewed.store, renewed.worker, renewed.outage
            if fate.kept or fate.problem is None:
                worker.renewed(list({held.token for held in fate.kept}), at)
            # A job that was acked after the heartbeat was sent is no longer held, and not lost.
            lost = [(held.token, held.id) for held in fate.lost if store.holds(held.token, held.id)]
            if lost:
                store.forget(lost)
                worker.lose_jobs(lost, "the lease expired and was reset")
            if fate.cancel:
                worker.cancel(fate.cancel)
            if fate.problem is None:
                outage.heal()
            else:  # neither renewed nor lost: the worker keeps the jobs until their leases expire
                outage.fail(ControlPlaneUnreachable(fate.problem))
                worker.stop_unrenewed()
        if response.status == "draining":
            self.asked_to_drain()

    def _register_soon(self, stale: int) -> None:
        if self._reregistering is None or self._reregistering.done():
            self._reregistering = asyncio.ensure_future(self._try_register_again(stale))

    async def _try_register_again(self, stale: int) -> None:
        try:
            await self.register_again(stale)
        except Exception as error:
            log.warning("could not register again (%s); the next heartbeat tries again", error)
