"""The job queue as a source of work for a node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from howdah import telemetry
from howdah.handler import Handler
from howdah.jobs.store import JobStore
from howdah.node.heartbeat import LeaseHolder
from howdah.node.registry import DatabaseContext, NodeRenewal
from howdah.worker.options import WorkerOptions

MOST_RESETS = 100
"""Leases per reset statement."""


class JobSource:
    """The job queue; a node opens it."""

    name = "jobs"
    shares_slots = True

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers

    def options(self, node: WorkerOptions) -> WorkerOptions:
        return node

    async def open(self, context: DatabaseContext) -> OpenJobSource:
        return OpenJobSource(self.handlers, context)


class OpenJobSource:
    """The job queue opened by one node: its store, heartbeat, wake-ups and resets."""

    def __init__(self, handlers: Mapping[str, Handler], context: DatabaseContext) -> None:
        self._context = context
        options = context.options
        self.store = JobStore(
            context.database,
            context.node,
            kinds=list(handlers),
            queues=list(options.queues) if options.queues is not None else None,
            lease=options.lease,
            poll=options.poll,
            notify=options.notify,
            pool=context.pool,
            labels=options.labels,
        )

    @property
    def wakeups_lost(self) -> bool:
        return self.store.wakeups_lost

    def renewal(self, holder: LeaseHolder) -> NodeRenewal:
        return NodeRenewal(self._context, holder)

    async def listen(self, stop: asyncio.Event) -> None:
        await self.store.listen(stop)

    async def reset(self) -> None:
        leases = MOST_RESETS
        while leases == MOST_RESETS:
            judged = await self.store.contact.note()
            leases, requeued, ended = await self.store.reset(MOST_RESETS, judged)
            if leases:
                telemetry.emit("job.reset", leases=leases, requeued=requeued, ended=ended)

    async def close(self) -> None:
        await self.store.close()
