"""A user's table as a work queue: declared by an application, opened by a node, renewed by a heartbeat."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from howdah import telemetry
from howdah.errors import ConfigError
from howdah.handler import Executor, Handler
from howdah.job import Job, current_job
from howdah.node.heartbeat import LeaseHolder
from howdah.node.registry import DatabaseContext
from howdah.outcome import Ack
from howdah.postgres.database import Session
from howdah.postgres.listen import Listener
from howdah.table.batch_handler import TableBatchHandler
from howdah.table.budget import Key
from howdah.table.execution_log import ExecutionLogEntry
from howdah.table.handler import TableHandler
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.rejected import Dropped, message_of, split
from howdah.table.statement import channel
from howdah.table.store import TableStore
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

H = TypeVar("H")


class Table:
    """One table to work on. The application inserts the rows."""

    def __init__(self, options: TableOptions) -> None:
        self.options = options
        self._handler: TableHandler | None = None
        self._open: list[OpenTableSource] = []

    def __repr__(self) -> str:
        return f"Table({self.options.table!r})"

    @property
    def name(self) -> str:
        """The kind of its jobs."""
        return self.options.name

    @overload
    def handler(self, target: H, /) -> H: ...

    @overload
    def handler(self, /, *, executor: Executor | None = None) -> Callable[[H], H]: ...

    def handler(self, target: Any = None, /, *, executor: Executor | None = None) -> Any:
        """Register the handler: a class or object with ``execute`` and hooks, or a function of the record."""
        if target is None:
            return lambda decorated: self._register(decorated, executor)
        return self._register(target, executor)

    def _register(self, target: H, executor: Executor | None) -> H:
        if self._handler is not None:
            raise ConfigError(f"table {self.name} has two handlers; one is enough")
        options = self.options
        settings: dict[str, Any] = {
            "executor": executor,
            "transactional": options.transactional,
            "retries": options.retries,
        }
        if options.batch is None:
            self._handler = TableHandler(options.name, target, options.reader, **settings)
        else:
            settings |= {"batch": options.batch, "within": options.within}
            self._handler = TableBatchHandler(options.name, target, options.reader, **settings)
        if self._handler.executor == "process":
            target.handler = self._handler  # type: ignore[attr-defined]  # where the other process finds it
        return target

    @property
    def source(self) -> TableSource:
        """The source of work that a node opens."""
        if self._handler is None:
            raise ConfigError(f"table {self.name} has no handler; decorate a class or function with @….handler")
        return TableSource(self.options, self._handler, self._open)

    def log(self, key: str, *, command: Sequence[object] = ()) -> ExecutionLogEntry:
        """Log a step of the attempt that is running here; it is written to ``execution_logs`` as it grows."""
        job = current_job()
        for opened in self._open:
            if opened.store.holds((job.token, job.id)):
                return opened.log(job, key, command)
        log.warning("job %s of table %s logs %r outside a node; the entry is not kept", job.id, self.name, key)
        return ExecutionLogEntry(None, key, command)


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

    async def open(self, context: DatabaseContext) -> OpenTableSource:
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
        self, plan: TablePlan, handler: TableHandler, context: DatabaseContext, opened: list[OpenTableSource]
    ) -> None:
        self._plan = self.plan = plan
        self._handler = handler
        self.store = TableStore(context.database, plan, pool=context.pool, gate=handler)
        self._opened = opened
        opened.append(self)
        handler.settle()
        if plan.budget or handler.gated:
            handler.over.append(self._over)
        if self.store.admitted is not None:
            handler.begun.append(self._begun)
        notify = plan.options.notify and context.options.notify
        self._listener = Listener(context.database, channel(plan.table.quoted), self._on_notify) if notify else None
        self._lease = context.options.lease

    @property
    def wakeups_lost(self) -> bool:
        return self._listener is not None and self._listener.reported

    def renewal(self, holder: LeaseHolder) -> TableHeartbeat:
        self.store.on_limit = holder.stop
        return TableHeartbeat(self._plan, self.store, holder, lease=self._lease)

    async def listen(self, stop: asyncio.Event) -> None:
        listening = self._listener.run(stop) if self._listener else stop.wait()
        await asyncio.gather(listening, self.store.execution_logs.run(stop))

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
        if self._begun in self._handler.begun:
            self._handler.begun.remove(self._begun)
        await self.store.close()

    def log(self, job: Job, key: str, command: Sequence[object]) -> ExecutionLogEntry:
        """Begin an entry in the execution logs of a row."""
        return self.store.execution_logs.open(job, key, command)

    def _begun(self, job: Job) -> None:
        if self.store.admitted is not None:
            self.store.admitted.remove((job.token, job.id))

    async def _over(self, job: Job, _ack: Ack) -> None:
        self._begun(job)
        self.store.free((job.token, job.id))
        self.store.wake()  # A row that exceeded the budget before may fit now.

    def _on_notify(self, _payload: str | None) -> None:
        self.store.wake()


ROW_LOST = "the row was deleted, requeued or reset"
HEARTBEAT_REJECTED = "the table refuses its heartbeat"
RETRY_AFTER = 0.5
"""Seconds until the next heartbeat while some rows are locked or rejected."""
GIVE_UP_AFTER = 0.4
"""Fraction of the stall time after which a row with rejected heartbeats is failed: before other nodes reset it."""


class TableHeartbeat:
    """Renews the rows this node holds, and learns which are lost or to be cancelled."""

    def __init__(self, plan: TablePlan, store: TableStore, holder: LeaseHolder, *, lease: float | None = None) -> None:
        self._plan = plan
        self._store = store
        self._holder = holder
        # A locked table must not delay the node's other heartbeats, on which the leases of jobs depend.
        self._patience = max(1.0, min(plan.options.stalled_after, lease or plan.options.stalled_after) / 6)
        self._refused: dict[Key, float] = {}
        """Rows whose heartbeats are rejected, and since when."""
        self.statement = plan.sql["heartbeat"]
        self.again: float | None = None
        """Seconds until the next heartbeat, if it is due earlier than usual."""

    async def __call__(self, session: Session) -> Callable[[], None]:
        tokens, at = self._holder.tokens(), time.monotonic()
        held = self._store.held(tokens)
        rows: list[Any] = []
        refused: list[tuple[Any, Exception]] = []
        if held:

            async def beat(ids: Sequence[Any]) -> list[Any]:
                left = self._patience - (time.monotonic() - at)
                return await session.fetch(self.statement, list(ids), tokens, timeout=max(0.1, left))

            rows, refused = await split(list({id for _, id in held}), beat)
            refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if row["free"] and not row["beat"]]
        known = {(row["token"], self._plan.id(row["id"])) for row in rows}
        unwanted = [self._plan.id(row["id"]) for row in rows if row["cancel"]]
        # A locked row is renewed as soon as it is unlocked, before a reset could count it as silent.
        self.again = RETRY_AFTER if refused or any(not row["free"] for row in rows) else None
        given_up = await self._give_up(held, refused, at, session)
        known |= {*self._refused, *given_up}

        def apply() -> None:
            holder, store = self._holder, self._store
            holder.renewed(tokens, at)
            # Rows acked since the statement was sent are no longer held, but not lost.
            lost = [key for key in held if key not in known and store.holds(key)]
            for key in [*lost, *given_up]:
                store.forget(key)
            if lost:
                holder.lose_jobs(lost, ROW_LOST)
            if given_up:
                holder.lose_jobs(given_up, HEARTBEAT_REJECTED)
            if unwanted:
                holder.cancel(unwanted)
            running = {(attempt.job.token, attempt.job.id) for attempt in holder.running}
            store.settle(set(holder.tokens()), running)

        return apply

    async def _give_up(
        self, held: Sequence[Key], refused: Sequence[tuple[Any, Exception]], at: float, session: Session
    ) -> list[Key]:
        """Note the rows whose heartbeat is rejected; fail and return those that will soon count as silent."""
        errors = dict(refused)
        self._store.notes.add("heartbeat", refused)
        keys = [key for key in held if key[1] in errors]
        self._refused = {key: self._refused.get(key, at) for key in keys}
        over = [key for key in keys if at - self._refused[key] >= GIVE_UP_AFTER * self._plan.options.stalled_after]
        for key in over:
            del self._refused[key]
            await self._store.fail(key, message_of(errors[key[1]]), session)
        return over
