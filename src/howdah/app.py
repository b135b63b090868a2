"""The application object :class:`Howdah`: declares tasks, tables and consumers, enqueues jobs, and runs nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Unpack

from howdah import contrib, telemetry
from howdah.arguments import LARGEST
from howdah.clients import ClientsByLoop
from howdah.contrib import is_native
from howdah.diagnose.why import Why
from howdah.errors import ConfigError
from howdah.events.append import ForeignAppender
from howdah.events.consumer import Consumer, ConsumerSettings, options_of
from howdah.events.consumers import NodeConsumers
from howdah.events.event import EventTypes
from howdah.events.log import Log
from howdah.handler import Handler
from howdah.job import PLATFORM_QUEUE, Enqueued, NewJob
from howdah.jobs.admin import Admin
from howdah.jobs.enqueue import ForeignEnqueue
from howdah.jobs.schedule import Missed, Schedule
from howdah.jobs.source import JobSource
from howdah.jobs.sync_admin import SyncAdmin
from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import DEFAULT_RETENTION, Retention, prune
from howdah.maintenance.scheduler import Scheduler
from howdah.node.node import Node
from howdah.node.parts import Loop
from howdah.node.registry import DatabaseContext, DatabaseRegistry
from howdah.observe.failure_log import logged
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.dsn import dsn_from_environment, plain_dsn
from howdah.redact import Hook, Redact
from howdah.store import Transaction
from howdah.table.options import TableOptions, TableSettings
from howdah.table.table import Table
from howdah.task import Task, TaskSettings
from howdah.task_registry import TaskRegistry
from howdah.webhooks.relay import Webhooks
from howdah.worker.options import WorkerOptions

H = TypeVar("H")


class Howdah(TaskRegistry):
    """Background work of an application on its PostgreSQL database: tasks, tables, consumers, schedules, webhooks."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        schema: str = "howdah",
        largest_payload: int = LARGEST,
        retention: Retention | None = None,
        redact: Hook | None = None,
    ) -> None:
        self._dsn = plain_dsn(dsn) if dsn else None
        self._schema = schema
        self._largest = largest_payload
        self.retention = retention or DEFAULT_RETENTION
        self.redact = Redact(hook=redact)
        """Hides secrets where jobs are displayed."""
        self.tasks: dict[str, Task[..., Any]] = {}
        self.tables: dict[str, Table] = {}
        self.schedules: dict[str, Schedule] = {}
        self.consumers: dict[str, Consumer] = {}
        self.types = EventTypes(largest_payload)
        """The classes of events, and the upcasters between their versions."""
        self.event = self.types.event
        self.upcaster = self.types.upcaster
        self._own: dict[str, Task[..., Any]] = {}
        self.prune = self._bring(prune(lambda: self.database, lambda: self.retention))
        """Built-in task of every app: prunes by the app's retention, or by the seconds given."""
        self.webhooks = Webhooks(self._bring)
        """The webhooks of the application."""
        self.webhook = self.webhooks.add
        self._clients = ClientsByLoop(self)
        self._foreign: ForeignEnqueue | None = None
        self._foreign_appender: ForeignAppender | None = None
        self.log = Log(
            self.types,
            here=self._clients.log,
            there=lambda call: self._clients.call(lambda clients: call(clients.log())),
            foreign=lambda: self.foreign_appender,
        )
        """The event log: append to it, read it, wait for its consumers."""

    # ---------------------------------------------------------------- tasks, schedules and tables

    def _bring(self, handler: Handler) -> Task[..., Any]:
        settings = TaskSettings(queue=PLATFORM_QUEUE)
        task = self._own[handler.kind] = Task(self, handler, settings, largest=self._largest)
        return task

    def schedule(self, name: str, job: NewJob, *, cron: str, zone: str = "UTC", missed: Missed = "once") -> Schedule:
        """Enqueue ``job`` at every slot of ``cron`` in ``zone``, once each, independently of the number of nodes."""
        if name in self.schedules:
            raise ConfigError(f"two schedules are named {name!r}")
        self.schedules[name] = Schedule(name=name, job=job, cron=cron, zone=zone, missed=missed)
        return self.schedules[name]

    def table(self, table: str, **settings: Unpack[TableSettings]) -> Table:
        """Make a table of your own a work queue: ``app.table("app.uploads", record=Upload, order_by=["id"])``."""
        made = Table(TableOptions(table=table, **settings))
        if made.name in self.tables or made.name in self.tasks:
            raise ConfigError(f"two tables or tasks are named {made.name!r}; give one of them name=…")
        self.tables[made.name] = made
        return made

    # ---------------------------------------------------------------- events

    def consumer(self, name: str, **settings: Unpack[ConsumerSettings]) -> Callable[[H], H]:
        """Make a coroutine function, or a class with ``handle``, follow the event log.

        It takes ``event``, or ``events`` for a whole batch, and ``tx``: its writes and the checkpoint are
        one commit.
        """

        def register(target: H) -> H:
            if name in self.consumers:
                raise ConfigError(f"two consumers are named {name!r}")
            self.consumers[name] = Consumer(name, target, options_of(name, settings, self.types))
            return target

        return register

    # ---------------------------------------------------------------- enqueue

    async def enqueue(self, job: NewJob, conn: Any = None) -> Enqueued:
        """Enqueue one job made by :meth:`Task.job`."""
        return await self._clients.client().enqueue(job, conn)

    async def enqueue_many(self, jobs: Iterable[NewJob], *, conn: Any = None) -> list[Enqueued]:
        """Enqueue all of them or none, by COPY; returns the results in order."""
        return await self._clients.client().enqueue_many(jobs, conn)

    def enqueue_sync(self, job: NewJob, conn: Any = None) -> Enqueued:
        """Enqueue one job from synchronous code; with ``conn``, in that connection's transaction."""
        return self.enqueue_many_sync([job], conn=conn)[0]

    def enqueue_many_sync(self, jobs: Iterable[NewJob], *, conn: Any = None) -> list[Enqueued]:
        """Enqueue all of them or none from synchronous code; with ``conn``, in that connection's transaction."""
        if conn is None:
            return self._clients.call(lambda clients: clients.client().enqueue_many(jobs))
        if is_native(conn) or isinstance(conn, Transaction):
            raise ConfigError(f"{type(conn).__name__} is asynchronous; await enqueue(...) instead")
        return self.foreign.enqueue_sync(list(jobs), conn)

    def trace_context(self) -> str | None:
        """Return the W3C trace context of the caller, if tracing is set up."""
        return telemetry.trace_context()

    # ---------------------------------------------------------------- running and administration

    @property
    def database(self) -> Database:
        """The database of the application."""
        dsn = self._dsn or dsn_from_environment()
        if dsn is None:
            raise ConfigError("no database is named; pass a DSN to Howdah(), or set HOWDAH_DSN, DATABASE_URL or PGHOST")
        return Database(dsn, schema=self._schema)

    def connect_to(self, dsn: str, schema: str | None = None) -> None:
        """Use this database from now on; for command lines and tests."""
        self._dsn = plain_dsn(dsn)
        self._schema = schema or self._schema
        self._foreign = self._foreign_appender = None
        self._clients.close_all()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Handlers of all tasks, including the built-in ones, by kind."""
        return {kind: task.handler for kind, task in (self.tasks | self._own).items()}

    @property
    def admin(self) -> Admin:
        """Administration: read, retry and cancel jobs, pause queues."""
        return self._clients.admin()

    @property
    def admin_sync(self) -> SyncAdmin:
        """The same from synchronous code, without ``await``."""
        return SyncAdmin(lambda call: self._clients.call(lambda clients: call(clients.admin())))

    @property
    def why(self) -> Why:
        """Diagnosis of a job that does not run, a consumer that does not advance, or a row that is not claimed."""
        return self._clients.why()

    async def migrate(self) -> list[migrate.Migration]:
        """Bring the schema to the version this code needs."""
        return await migrate.migrate(self.database)

    def node(self, options: WorkerOptions | None = None, *, upkeep: bool = True) -> Node[DatabaseContext]:
        """Make a node that is ready to run."""
        if not self.tasks and not self.tables and not self.consumers:
            missing = "no task, table or consumer is registered, so there is nothing to work on"
            raise ConfigError(f"{missing}; decorate one with @app.task")
        return Node(
            DatabaseRegistry(self.database),
            [JobSource(self.handlers), *(table.source for table in self.tables.values())],
            self.webhooks.serving(options or WorkerOptions()),
            services=[lambda context: NodeConsumers(self.consumers, self.types, context)] if self.consumers else [],
            loops=self._upkeep if upkeep else tuple,
            resets=upkeep,
            observed=logged,
        )

    def _upkeep(self) -> list[Loop]:
        maintenance = MaintenanceLoops(self.database, retention=self.retention, scheduler=self._scheduler())
        relay = self.webhooks.relay(self.database)
        notices = [Loop(name="howdah notices", run=relay.run)] if relay else []
        return [Loop(name="howdah upkeep", run=maintenance.run), *notices]

    def _scheduler(self) -> Scheduler | None:
        return Scheduler(self.database, self.schedules, self._clients.client()) if self.schedules else None

    async def work(self, options: WorkerOptions | None = None) -> None:
        """Run a node until it is cancelled or, with ``drain``, until no work is due."""
        await self.node(options).run_until_cancelled()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._clients.close()

    @property
    def foreign(self) -> ForeignEnqueue:
        """Enqueues through connections of other libraries; needs no DSN of its own."""
        if self._foreign is None:
            self._foreign = ForeignEnqueue(self._schema, contrib.wrap)
        return self._foreign

    @property
    def foreign_appender(self) -> ForeignAppender:
        """Appends through connections of other libraries; needs no DSN of its own."""
        if self._foreign_appender is None:
            self._foreign_appender = ForeignAppender(self._schema, contrib.wrap)
        return self._foreign_appender
