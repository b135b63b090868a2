"""The front of our own queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from howdah import telemetry
from howdah.front import Site
from howdah.handler import Handler
from howdah.jobs.store import JobStore
from howdah.node.beat import Holder, NodeBeat
from howdah.work.options import WorkerOptions

MOST_RESETS = 100


class JobFront:
    """Jobs in tables of ours."""

    name = "jobs"
    shares_slots = True

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers

    def options(self, node: WorkerOptions) -> WorkerOptions:
        return node

    async def open(self, site: Site) -> OpenJobs:
        return OpenJobs(self.handlers, site)


class OpenJobs:
    """The queue as one node works on it."""

    def __init__(self, handlers: Mapping[str, Handler], site: Site) -> None:
        self._site = site
        options = site.options
        self.store = JobStore(
            site.database,
            site.node,
            kinds=list(handlers),
            queues=list(options.queues) if options.queues is not None else None,
            lease=options.lease,
            poll=options.poll,
            notify=options.notify,
            pool=site.pool,
            labels=options.labels,
        )

    @property
    def troubled(self) -> bool:
        return self.store.troubled

    def beat(self, holder: Holder) -> NodeBeat:
        site = self._site
        return NodeBeat(
            site.database,
            site.registration,
            lease=site.options.lease,
            holder=holder,
            pulse=site.pulse,
            drain=site.drain,
        )

    async def listen(self, stop: asyncio.Event) -> None:
        await self.store.listen(stop)

    async def reset(self) -> None:
        leases = MOST_RESETS
        while leases == MOST_RESETS:
            leases, requeued, ended = await self.store.reset(MOST_RESETS)
            if leases:
                telemetry.emit("job.reset", leases=leases, requeued=requeued, ended=ended)

    async def close(self) -> None:
        await self.store.close()
