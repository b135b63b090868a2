"""The front of one table of the user's."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence

from howdah import telemetry
from howdah.front import Site
from howdah.handler import Handler
from howdah.job import Job
from howdah.node.beat import Holder
from howdah.outcome import Ack
from howdah.pg.database import Session
from howdah.pg.listen import Listener
from howdah.table.beat import TableBeat
from howdah.table.handler import TableHandler
from howdah.table.journal import Entry
from howdah.table.options import TableOptions
from howdah.table.plan import Plan
from howdah.table.store import TableStore
from howdah.work.options import WorkerOptions

MOST_RESETS = 100


class TableFront:
    """The rows of one table."""

    def __init__(self, options: TableOptions, handler: TableHandler, opened: list[OpenTable]) -> None:
        self._options = options
        self._handler = handler
        self._opened = opened
        self.name = options.name
        self.handlers: Mapping[str, Handler] = {options.name: handler}
        self.shares_slots = options.slots is None

    def options(self, node: WorkerOptions) -> WorkerOptions:
        return self._options.worker(node)

    async def open(self, site: Site) -> OpenTable:
        session = Session(site.database, "check")
        try:
            async with session.use() as conn:
                plan = await Plan.make(conn, self._options, site.database.schema)
        finally:
            await session.close()
        opened = OpenTable(plan, self._handler, site, self._opened)
        try:
            await opened.store.declare()
        except BaseException:
            await opened.close()
            raise
        return opened


class OpenTable:
    """A table as one node works on it."""

    def __init__(self, plan: Plan, handler: TableHandler, site: Site, opened: list[OpenTable]) -> None:
        self._plan = self.plan = plan
        self._handler = handler
        self.store = TableStore(site.database, plan, pool=site.pool, gate=handler)
        self._opened = opened
        opened.append(self)
        handler.settle()
        if plan.budget or handler.gated:
            handler.over.append(self._over)
        notify = plan.options.notify and site.options.notify
        self._listener = Listener(site.database, channel(plan.table.quoted), self._heard) if notify else None
        self._lease = site.options.lease

    @property
    def troubled(self) -> bool:
        return self._listener is not None and self._listener.told

    def beat(self, holder: Holder) -> TableBeat:
        self.store.spent = holder.stop
        return TableBeat(self._plan, self.store, holder, lease=self._lease)

    async def listen(self, stop: asyncio.Event) -> None:
        listening = self._listener.run(stop) if self._listener else stop.wait()
        await asyncio.gather(listening, self.store.journal.run(stop))

    async def reset(self) -> None:
        while any(done := await self.store.reset(MOST_RESETS)):
            reset, failed = done
            telemetry.emit("table.reset", table=self._plan.options.name, reset=reset, failed=failed)
        while await self.store.cancel(MOST_RESETS) >= MOST_RESETS:
            pass

    async def close(self) -> None:
        self._opened.remove(self)
        if self._over in self._handler.over:
            self._handler.over.remove(self._over)
        await self.store.close()

    def log(self, job: Job, key: str, command: Sequence[object]) -> Entry:
        """Begin an entry in the execution logs of a row."""
        return self.store.journal.open(job, key, command)

    async def _over(self, job: Job, _ack: Ack) -> None:
        self.store.free((job.token, job.id))
        self.store.wake()  # what was too much before may be welcome now

    def _heard(self, _payload: str | None) -> None:
        self.store.wake()


def channel(table: str) -> str:
    """The notification channel of a table, by its quoted name."""
    return "howdah_table_" + hashlib.md5(table.encode(), usedforsecurity=False).hexdigest()[:16]
