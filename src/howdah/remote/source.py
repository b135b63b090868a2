"""Sources of work of a node without a database: the tasks and tables that it can run, over HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from howdah.app import Howdah
from howdah.errors import ConfigError
from howdah.handler import Handler
from howdah.job import Job
from howdah.node.heartbeat import LeaseHolder, Renewal
from howdah.node.parts import NodeContext
from howdah.remote import messages as m
from howdah.remote.registry import RemoteRegistry
from howdah.remote.store import LONG_POLL, RemoteRegistration, RemoteStore
from howdah.table.handler import TableHandler
from howdah.table.options import TableOptions
from howdah.table.statement import Where
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

TRANSACTIONAL = "it is transactional: its writes and its outcome are one commit"
BUDGET = "it has a budget: the cost of its rows is counted when they are claimed"
CONSUMER = "it is a consumer: its checkpoint is committed together with its writes"


@dataclass(frozen=True, slots=True)
class TableCapability:
    """A table whose rows a remote worker can run."""

    options: TableOptions
    handler: TableHandler


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Handlers of tasks and tables that need no database."""

    jobs: Mapping[str, Handler]
    tables: Mapping[str, TableCapability]

    @classmethod
    def of(cls, app: Howdah) -> Capabilities:
        """Return the capabilities of an application; log what is left out and why."""
        excluded = needs_database(app)
        for name, why in sorted(excluded.items()):
            log.warning("%s is not run here, since it needs a node with the database: %s", name, why)
        jobs = {kind: task.handler for kind, task in app.tasks.items() if kind not in excluded}
        tables = {}
        for name, table in app.tables.items():
            handler = table.source.handlers[name]
            if name not in excluded and isinstance(handler, TableHandler):
                tables[name] = TableCapability(table.options, handler)
        if not jobs and not tables:
            raise ConfigError("there is no task or table that can be run without a database")
        return cls(jobs, tables)


def needs_database(app: Howdah) -> dict[str, str]:
    """Return the tasks, tables and consumers that only a node with the database can run, each with the reason."""
    excluded = {kind: TRANSACTIONAL for kind, task in app.tasks.items() if task.handler.transactional}
    for name, table in app.tables.items():
        if table.options.transactional:
            excluded[name] = TRANSACTIONAL
        elif table.options.budget is not None:
            excluded[name] = BUDGET
    return excluded | dict.fromkeys(app.consumers, CONSUMER)


class RemoteJobSource:
    """The job queue behind a control plane."""

    name = m.JOBS
    shares_slots = True

    def __init__(self, registry: RemoteRegistry, handlers: Mapping[str, Handler]) -> None:
        self._registry = registry
        self.handlers = handlers

    def options(self, node: WorkerOptions) -> WorkerOptions:
        return node

    async def open(self, context: NodeContext) -> OpenRemoteSource:
        options = context.options
        store = RemoteStore(self._registry, wait=long_poll(options), poll=options.poll)
        return OpenRemoteSource(self._registry, self.name, store)


class RemoteTableSource:
    """A table behind a control plane."""

    def __init__(self, registry: RemoteRegistry, table: TableCapability) -> None:
        self._registry = registry
        self._table = table
        self.name = table.options.name
        self.handlers: Mapping[str, Handler] = {self.name: table.handler}
        self.shares_slots = table.options.slots is None

    def options(self, node: WorkerOptions) -> WorkerOptions:
        own = self._table.options.worker(node)
        return replace(own, lease=min(own.lease, node.lease))  # the control plane expires leases after this time

    async def open(self, context: NodeContext) -> OpenRemoteSource:
        options, table = context.options, self._table
        longest = min(long_poll(options), self.options(options).lease / 2)
        store = RemoteTableStore(self._registry, table.options, table.handler, wait=longest)
        return OpenRemoteSource(self._registry, self.name, store)


class OpenRemoteSource:
    """A source that is open on a remote node. Long polls replace notifications; the control plane resets leases."""

    wakeups_lost = False

    def __init__(self, registry: RemoteRegistry, name: str, store: RemoteStore) -> None:
        self._registry = registry
        self._name = name
        self.store = store

    def renewal(self, holder: LeaseHolder) -> Renewal:
        if isinstance(self.store, RemoteTableStore):
            self.store.on_exhausted = holder.stop
        return self._registry.add(self._name, self.store, holder)

    async def listen(self, stop: asyncio.Event) -> None:
        await stop.wait()

    async def reset(self) -> None: ...

    async def close(self) -> None: ...


def long_poll(options: WorkerOptions) -> float:
    """Return the seconds of a long poll; 0: none.

    It ends well before the lease: a process that was frozen longer would not read the response.
    """
    return min(LONG_POLL, options.lease / 2) if options.notify else 0.0


class RemoteTableStore(RemoteStore):
    """Calls the ``before_claim`` hook and applies ``total_jobs`` and ``max_active_time``."""

    def __init__(
        self, registration: RemoteRegistration, options: TableOptions, handler: TableHandler, *, wait: float = LONG_POLL
    ) -> None:
        # A before_claim hook has to run before every claim, so claims cannot wait at the control plane.
        super().__init__(registration, options.name, wait=0.0 if handler.gated else wait, poll=options.poll)
        handler.settle()
        self._options = options
        self._handler = handler
        self._claimed = 0
        self._started_at = time.monotonic()
        self.on_exhausted: Callable[[], None] = lambda: None
        """Called once the table's limits allow no more claims."""

    async def claim(self, limit: int, room: Mapping[str, int]) -> list[Job]:
        limit = self._remaining(limit)
        if limit <= 0:
            self.on_exhausted()
            return []
        if not await self._may_claim():
            return []
        jobs = await super().claim(limit, room)
        self._claimed += len(jobs)
        return jobs

    async def _may_claim(self) -> bool:
        allowed = await self._handler.may_claim()
        if isinstance(allowed, Where):
            raise ConfigError(
                f"before_claim of table {self._name} returned a Where; without a database it can be True or False"
            )
        return allowed

    def _remaining(self, limit: int) -> int:
        options = self._options
        if options.max_active_time and time.monotonic() - self._started_at >= options.max_active_time:
            return 0
        return min(limit, options.total_jobs - self._claimed) if options.total_jobs else limit
