"""Conductor: one node from start to end: register, beat, work, tidy, drain, say goodbye."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

import asyncpg

from howdah import telemetry
from howdah.handler import Handler
from howdah.jobs.store import JobStore
from howdah.node.heart import Heart, Pulse
from howdah.node.registry import deregister, node_name, register
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.store import Beat
from howdah.upkeep.loops import Upkeep
from howdah.upkeep.pruner import Retention
from howdah.version import __version__
from howdah.work.options import WorkerOptions
from howdah.work.worker import Worker

log = logging.getLogger("howdah")

RESET_EVERY = 2.0


class Conductor:
    """Wires a worker to its store, its heart and its upkeep. The only place that knows them all."""

    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        options: WorkerOptions,
        *,
        retention: Retention | None = None,
        upkeep: bool = True,
    ) -> None:
        self._database = database
        self._handlers = handlers
        self._options = options
        self._retention = retention or Retention()
        self._with_upkeep = upkeep
        self.node = 0
        self.worker: Worker | None = None
        self.heart: Heart | None = None
        self._store: JobStore | None = None
        self._stopping: bool = False
        self._now = False

    @property
    def ready(self) -> bool:
        """Whether this node is taking work."""
        return self.worker is not None and not self.worker.draining

    def stop(self, *, now: bool = False) -> None:
        """Drain; ``now``: hand everything back at once."""
        self._stopping, self._now = True, self._now or now
        if self.worker:
            self.worker.stop(now=now)

    async def run(self) -> None:
        """Work until :meth:`stop` (or until nothing is left, when draining)."""
        began = time.monotonic()
        await migrate.check(self._database)
        queues = list(self._options.queues) if self._options.queues is not None else None
        self.node = await register(
            self._database,
            version=__version__,
            queues=queues,
            kinds=list(self._handlers),
            slots=self._options.slots,
        )
        pool = await self._database.pool(max(4, min(self._options.slots, 20)))
        store = self._store = JobStore(
            self._database,
            self.node,
            kinds=list(self._handlers),
            queues=queues,
            lease=self._options.lease,
            poll=self._options.poll,
            notify=self._options.notify,
            pool=pool,
        )
        worker = self.worker = Worker(store, self._handlers, self._options)
        if self._stopping:
            worker.stop(now=self._now)
        heart = self.heart = Heart(
            self._database,
            self.node,
            heartbeat=self._options.heartbeat,
            lease=self._options.lease,
            pulse=self._pulse,
            beat=self._beat,
            fail=worker.lose_expired,
        )
        log.info(
            "node %d (%s) starts: %d slots, queues %s",
            self.node,
            node_name(),
            self._options.slots,
            _say(queues),
        )
        telemetry.emit("node.start", node=self.node, name=node_name(), queues=queues, slots=self._options.slots)
        over = asyncio.Event()
        heart.start()
        beside = [asyncio.create_task(store.listen(over), name="howdah listen")]
        if self._with_upkeep:
            upkeep = Upkeep(
                self._database,
                retention=self._retention,
                reset_every=min(RESET_EVERY, self._options.lease / 4),
            )
            beside.append(asyncio.create_task(upkeep.run(over), name="howdah upkeep"))
        try:
            await worker.run()
        finally:
            heart.stop()
            over.set()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._goodbye(store, pool)
            seconds = time.monotonic() - began
            log.info("node %d stops after %.1f s", self.node, seconds)
            telemetry.emit("node.stop", node=self.node, seconds=seconds)

    def _pulse(self) -> Pulse:
        assert self.worker is not None
        running = len(self.worker.running)
        state = "draining" if self.worker.draining else "busy" if running else "idle"
        return Pulse(self.worker.tokens(), state, running, self._store is not None and self._store.troubled)

    def _beat(self, beat: Beat, kept: Sequence[int], at: float) -> None:
        assert self.worker is not None
        self.worker.renewed(kept, at)
        if beat.lost:
            self.worker.lose(beat.lost, "the lease expired and was taken back")
        if beat.cancel:
            self.worker.cancel(beat.cancel)

    async def _goodbye(self, store: JobStore, pool: asyncpg.Pool) -> None:
        try:
            await asyncio.wait_for(deregister(self._database, self.node), 3)
        except Exception as error:
            log.warning("could not say goodbye: %s", error)
        await store.close()
        pool.terminate()


def _say(queues: Sequence[str] | None) -> str:
    return "all" if queues is None else ", ".join(queues)
