"""The source of work of one user table."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence

from howdah import telemetry
from howdah.handler import Handler
from howdah.job import Job
from howdah.node.heartbeat import LeaseHolder
from howdah.node.source import NodeContext
from howdah.outcome import Ack
from howdah.postgres.database import Session
from howdah.postgres.listen import Listener
from howdah.table.execution_log import ExecutionLogEntry
from howdah.table.handler import TableHandler
from howdah.table.heartbeat import TableHeartbeat
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.store import TableStore
from howdah.worker.options import WorkerOptions

MOST_RESETS = 100


class TableSource:
    """The rows of one table."""

    def __init__(self, options: TableOptions, handler: TableHandler, opened: list[OpenTableSource]) -> None:
        self._options = options
        self._handler = handler
        self._opened = opened
        self.name = options.name
        self.handlers: Mapping[str, Handler] = {options.name: handler}
        self.shares_slots = options.slots is None

    def options(self, node: WorkerOptions) -> WorkerOptions:
        return self._options.worker(node)

    async def open(self, context: NodeContext) -> OpenTableSource:
        session = Session(context.database, "check")
        try:
            async with session.use() as conn:
                plan = await TablePlan.make(conn, self._options, context.database.schema)
        finally:
            await session.close()
        opened = OpenTableSource(plan, self._handler, context, self._opened)
        try:
            await opened.store.declare()
        except BaseException:
            await opened.close()
            raise
        return opened


class OpenTableSource:
    """A table opened by one node."""

    def __init__(
        self, plan: TablePlan, handler: TableHandler, context: NodeContext, opened: list[OpenTableSource]
    ) -> None:
        self._plan = self.plan = plan
        self._handler = handler
        self.store = TableStore(context.database, plan, pool=context.pool, gate=handler)
        self._opened = opened
        opened.append(self)
        handler.settle()
        if plan.budget or handler.gated:
            handler.over.append(self._over)
        notify = plan.options.notify and context.options.notify
        self._listener = Listener(context.database, channel(plan.table.quoted), self._heard) if notify else None
        self._lease = context.options.lease

    @property
    def wakeups_lost(self) -> bool:
        return self._listener is not None and self._listener.reported

    def renewal(self, holder: LeaseHolder) -> TableHeartbeat:
        self.store.spent = holder.stop
        return TableHeartbeat(self._plan, self.store, holder, lease=self._lease)

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

    def log(self, job: Job, key: str, command: Sequence[object]) -> ExecutionLogEntry:
        """Begin an entry in the execution logs of a row."""
        return self.store.journal.open(job, key, command)

    async def _over(self, job: Job, _ack: Ack) -> None:
        self.store.free((job.token, job.id))
        self.store.wake()  # A row that exceeded the budget before may fit now.

    def _heard(self, _payload: str | None) -> None:
        self.store.wake()


def channel(table: str) -> str:
    """Return the notification channel of a table, by its quoted name."""
    return "howdah_table_" + hashlib.md5(table.encode(), usedforsecurity=False).hexdigest()[:16]
