"""RemoteConductor: a node without a database, from start to end: register, beat, work, drain, say goodbye."""

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
from howdah.fleet import messages as m
from howdah.fleet.able import Able
from howdah.fleet.client import Client, NotKnown, Turned, Unreachable
from howdah.fleet.remote_table import RemoteTable
from howdah.fleet.store import WAIT, RemoteStore
from howdah.node.heart import Heart
from howdah.node.registry import node_name
from howdah.service import Outage, wait
from howdah.version import __version__
from howdah.work.execute import Attempt
from howdah.work.options import WorkerOptions
from howdah.work.slots import Slots
from howdah.work.worker import Worker

log = logging.getLogger("howdah")

GOODBYE = 5.0
"""Seconds saying goodbye may take, and the last heartbeat."""


class RemoteConductor:
    """Wires workers to the control plane. ``patience``: seconds it may be away at the start; ``None``: for ever."""

    def __init__(
        self, app: Howdah, options: WorkerOptions, make: Callable[[], Client], *, patience: float | None = None
    ) -> None:
        self._options = options
        self._make = make
        self._patience = patience
        self._able = Able.of(app)
        self.client = make()
        self._beater: Client | None = None
        self._joined: m.Registered | None = None
        self._joining = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None
        self._stores: dict[str, RemoteStore] = {}
        self.workers: dict[str, Worker] = {}
        self._outages: dict[str, Outage] = {}
        self.heart: Heart | None = None
        self._stopping = self._now = False
        self._hurry = asyncio.Event()

    @property
    def node(self) -> int:
        """Its id at the control plane; 0 until it is registered."""
        return self.client.node

    @property
    def lease(self) -> float:
        """Seconds its work stays its own without a heartbeat."""
        return self._joined.lease if self._joined else self._options.lease

    @property
    def ready(self) -> bool:
        """Whether this node is taking work."""
        return any(not worker.draining for worker in self.workers.values())

    @property
    def running(self) -> list[Attempt]:
        """The attempts running now."""
        return [attempt for worker in list(self.workers.values()) for attempt in worker.running]

    def stop(self, *, now: bool = False) -> None:
        """Drain; ``now``: hand everything back at once."""
        self._stopping, self._now = True, self._now or now
        self._hurry.set()
        for worker in self.workers.values():
            worker.stop(now=now)

    async def run(self) -> None:
        """Work until :meth:`stop` (or until nothing is left, when draining)."""
        began = time.monotonic()
        try:
            if await self._join_at_last():
                await self._work(began)
        finally:
            await self._close()

    # ---------------------------------------------------------------- registration

    async def join_again(self, stale: int) -> None:
        """The control plane does not know us any more: register, unless somebody just did."""
        async with self._joining:
            if self.node != stale:
                return
            self._lose_all("the control plane does not know this worker any more")
            if not self._stopping:
                await self._join()
                log.info("registered again, as node %d", self.node)

    async def _join(self) -> None:
        options = self._options
        self._joined = await self.client.register(
            m.Register(
                hostname=node_name()[:100],
                kinds=list(self._able.jobs),
                tables=list(self._able.tables),
                queues=list(options.queues) if options.queues is not None else None,
                labels=list(options.labels),
                slots=options.slots,
                version=__version__,
            )
        )
        if self.heart:
            self.heart.node = self.node

    async def _join_at_last(self) -> bool:
        """Register once the control plane is there; a refusal is final. False when stopped meanwhile."""
        outage = Outage("registration")
        deadline = None if self._patience is None else time.monotonic() + self._patience
        while not self._stopping:
            try:
                await self._join()
            except Unreachable as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(str(error)) from None
                await wait(self._hurry, outage.fail(error))
            except (Turned, NotKnown) as error:
                raise ConfigError(f"the control plane at {self.client.server} refuses this worker: {error}") from None
            else:
                outage.heal()
                return True
        return False

    # ---------------------------------------------------------------- the heart

    async def _beat(self, _session: Any) -> Callable[[], None]:
        """Say that we live and what we hold; runs in the heart's thread, with a client of its own."""
        if self._beater is None:
            self._beater = self._make()
        assert self._joined is not None
        self._beater.adopt(self._joined)
        at, node = time.monotonic(), self._beater.node
        held = {name: store.held() for name, store in self._stores.items()}
        message = m.Heartbeat(held={name: each for name, each in held.items() if each}, running=len(self.running))
        try:
            said = await self._beater.tell("heartbeat", message, m.Beaten)
        except NotKnown:
            return lambda: self._join_soon(node)
        heard = said or m.Beaten(status="idle")
        heard.fates = {name: fate for name, fate in heard.fates.items() if name in self._stores}
        return lambda: self._heed(heard, at)

    async def _close_beater(self) -> None:
        if self._beater:
            await self._beater.close()

    def _heed(self, said: m.Beaten, at: float) -> None:
        for name, fate in said.fates.items():
            store, worker = self._stores[name], self.workers[name]
            worker.renewed(list({held.token for held in fate.kept}), at)
            # what was acked since the question is no longer held, and not lost
            lost = [(held.token, held.id) for held in fate.lost if store.holds(held.token, held.id)]
            if lost:
                store.forget(lost)
                worker.lose_jobs(lost, "the lease expired and was taken back")
            if fate.cancel:
                worker.cancel(fate.cancel)
            if fate.problem is None:
                self._outages[name].heal()
            else:  # neither renewed nor lost: it stays ours until its own lease is over
                self._outages[name].fail(Unreachable(fate.problem))
                self._lose_expired(name)
        if said.status == "draining":
            self.asked_to_drain()

    def asked_to_drain(self) -> None:
        """The control plane has no more work for us, ever."""
        if not self._stopping:
            log.info("the control plane wants node %d to drain", self.node)
            self.stop()

    def _join_soon(self, stale: int) -> None:
        if self._again is None or self._again.done():
            self._again = asyncio.ensure_future(self._join_or_wait(stale))

    async def _join_or_wait(self, stale: int) -> None:
        try:
            await self.join_again(stale)
        except Exception as error:
            log.warning("could not register again (%s); the next heartbeat tries", error)

    def _lose_all_expired(self) -> None:
        for name in self.workers:
            self._lose_expired(name)

    def _lose_expired(self, name: str) -> None:
        worker = self.workers[name]
        before = worker.tokens()
        worker.lose_expired()
        # the next heartbeat that gets through must not renew what nobody works on any more
        self._stores[name].give_up(set(before).difference(worker.tokens()))

    def _lose_all(self, reason: str) -> None:
        for name, worker in self.workers.items():
            self._stores[name].forget_all()
            worker.lose(worker.tokens(), reason)

    # ---------------------------------------------------------------- the work

    async def _work(self, began: float) -> None:
        assert self._joined is not None
        options = replace(self._options, lease=self._joined.lease, heartbeat=self._joined.heartbeat)
        tasks: list[asyncio.Task[None]] = []
        try:
            self._start_heart(self._open(options))
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
            await self._goodbye()
            log.info("node %d stops after %.1f s", self.node, time.monotonic() - began)
            telemetry.emit("node.stop", node=self.node, seconds=time.monotonic() - began)

    def _start_heart(self, heartbeat: float) -> None:
        self.heart = Heart(
            None,
            self.node,
            heartbeat=heartbeat,
            beats=[self._beat],
            fail=self._lose_all_expired,
            close=self._close_beater,
        )
        self.heart.start()

    def _open(self, options: WorkerOptions) -> float:
        """Make the stores and their workers; returns how often to beat so that none of them loses its work."""
        shared, heartbeat = Slots(options.slots), options.heartbeat
        # a claim of a frozen process must be over before its leases are: nobody would read the answer
        patience = min(WAIT, options.lease / 2) if options.notify else 0.0
        if self._able.jobs:
            self._add(m.JOBS, RemoteStore(self, wait=patience, poll=options.poll), self._able.jobs, options, shared)
        for name, table in self._able.tables.items():
            own = table.options.worker(options)
            own = replace(own, lease=min(own.lease, options.lease))  # the control plane waits no longer for us
            heartbeat = min(heartbeat, own.heartbeat)
            store = RemoteTable(self, table.options, table.handler, wait=min(patience, own.lease / 2))
            slots = shared if table.options.slots is None else Slots(own.slots)
            self._add(name, store, {name: table.handler}, own, slots)
            store.spent = self.workers[name].stop
        return heartbeat

    def _add(self, name: str, store: RemoteStore, handlers: Any, options: WorkerOptions, slots: Slots) -> None:
        self._stores[name] = store
        self._outages[name] = Outage(f"heartbeat of {name}")
        self.workers[name] = Worker(store, handlers, options, slots)
        if self._stopping:
            self.workers[name].stop(now=self._now)

    async def _goodbye(self) -> None:
        """Beat no more, and say that nobody needs to wait for the next one."""
        if self.heart:
            self.heart.stop(patience=0)
            until = time.monotonic() + GOODBYE
            # not by join: signals need the event loop
            while self.heart.beating and time.monotonic() < until:
                await wait(asyncio.Event(), 0.02)
        try:
            async with asyncio.timeout(GOODBYE):
                await self.client.leave()
        except NotKnown:
            pass
        except Exception as error:
            log.warning("could not say goodbye: %s", error or type(error).__name__)

    async def _close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            await asyncio.gather(self._again, return_exceptions=True)
        await self.client.close()
