"""The control plane as a node: an HTTP server, its queues and its loops. It runs no jobs itself."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import asyncpg
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from howdah import telemetry
from howdah.app import Howdah
from howdah.control_plane.auth import Authenticator
from howdah.control_plane.dashboard import PATH, make_dashboard, to_dashboard
from howdah.control_plane.http import HttpApi
from howdah.control_plane.job_queue import REFRESH_EVERY, RemoteJobQueue, SessionPool
from howdah.control_plane.jobs_api import JobsApi
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.reports import REPORT_TTL
from howdah.control_plane.sockets import HttpServer, bind, http_server, url_of
from howdah.control_plane.table_queue import RemoteTableQueue
from howdah.control_plane.work_api import WorkApi
from howdah.control_plane.workers_api import WorkersApi
from howdah.dashboard import Dashboard
from howdah.dashboard.link_key import LinkKey
from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import DAY, DEFAULT_RETENTION, Retention
from howdah.node.heartbeat import Contact
from howdah.node.node import Node
from howdah.node.parts import Loop, NodeContext, periodic
from howdah.node.registry import Unregistered
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import QueueDepth
from howdah.postgres import sql
from howdah.remote.source import needs_database
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

SESSIONS = 3
"""Connections for the short statements on workers and tokens."""
WEEK = 7 * DAY
OFFLINE_EVERY = 5.0
RESET_EVERY = 2.0
PRUNE_EVERY = 60.0
LOOPS_TIMEOUT = 0.5
"""Seconds for the loops to end at shutdown."""


class ControlPlaneServer:
    """A control plane for one application. Any number of replicas may run; each also runs the maintenance loops."""

    def __init__(self, app: Howdah, options: ServeOptions, key: LinkKey | None = None) -> None:
        """``key``: without authentication, the dashboard needs it."""
        self._options = options
        self._service = ControlPlaneService(app, options, key)
        self._node: Node[NodeContext] = Node(
            Unregistered(app.database),
            [],
            WorkerOptions(),
            services=[lambda _context: self._service],
            loops=self._service.loops,
            loops_timeout=LOOPS_TIMEOUT,
        )

    @property
    def retention(self) -> Retention:
        """Retention of finished jobs: that of the application, else a week."""
        return self._service.retention

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Starlette]:
        """Yield the ASGI application, with the loops running while the block lasts."""
        async with self._node.started():
            try:
                yield self._service.app
            finally:
                self.stop()

    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        sockets = self._service.sockets = bind(self._options.host, self._options.port)
        try:
            await self._node.run()
        finally:
            for each in sockets:
                each.close()

    async def listening(self) -> str:
        """Wait until the server listens; return its URL."""
        return await asyncio.shield(self._service.url())

    def stop(self) -> None:
        """Accept no more requests and end the long polls; other running requests may finish."""
        self._node.stop()


class ControlPlaneService:
    """The HTTP API, the queues behind it and the loops of a control plane."""

    wakeups_lost = False

    def __init__(self, app: Howdah, options: ServeOptions, key: LinkKey | None) -> None:
        self._app = app
        self._key = key
        self._options = options
        self._database = app.database
        self._session = SessionPool(self._database, "fleet", SESSIONS)
        self._sql = sql.load("howdah.control_plane", schema=self._database.schema)
        self._contact = Contact(self._database, self._session, lease=options.offline_after, remote=True)
        self._depth = QueueDepth(self._database)
        self._metrics = Metrics(depth=self._depth)
        self._pool: asyncpg.Pool | None = None
        self._queues: list[RemoteJobQueue | RemoteTableQueue] = []
        self._dashboard: Dashboard | None = None
        self._http: HttpServer | None = None
        self._url: asyncio.Future[str] | None = None
        self._stopped = False
        self.sockets: Sequence[socket.socket] = ()

    @property
    def retention(self) -> Retention:
        """Retention of finished jobs: that of the application, else a week."""
        own = self._app.retention
        return Retention(done=WEEK, failed=WEEK) if own is DEFAULT_RETENTION else own

    async def open(self) -> None:
        """Open the queues and make the ASGI application."""
        options, database, session = self._options, self._database, self._session
        guarded = options.auth == "token"
        auth = Authenticator(database, session, guarded=guarded, rate=options.rate, refusals=options.refusals)
        await auth.check()
        excluded = needs_database(self._app)
        for name, why in sorted(excluded.items()):
            log.info("%s is not offered over HTTP, only to nodes with the database: %s", name, why)
        await self._open_queues(excluded)
        jobs, tables = self._jobs, self._tables
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._metrics)
        api = HttpApi(
            auth,
            WorkersApi(
                database, options, auth=auth, session=session, jobs=jobs, tables=tables, needs_database=excluded
            ),
            WorkApi(database, auth=auth, session=session, jobs=jobs, tables=tables),
            JobsApi(self._app, database, session),
            largest_body=options.largest_body,
            ready=self._ready,
            metrics=lambda: generate_latest(registry),
        )
        if options.dashboard:
            self._dashboard = make_dashboard(self._app, auth, options, self._key)
            redirects = [Route(path, to_dashboard, methods=["GET"]) for path in ("/", PATH)]
            api.app.router.routes += [*redirects, Mount(PATH, self._dashboard)]
        self.app = api.app
        self._metrics.start()

    async def _open_queues(self, excluded: Collection[str]) -> None:
        options, database = self._options, self._database
        lease = options.offline_after
        if self._pool is None:  # a repeated start uses the pool of the first
            self._pool = await database.pool(options.pool)
        pool = self._pool
        self._jobs = RemoteJobQueue(database, pool, lease=lease, poll=options.poll, notify=options.notify)
        self._tables = {
            name: await RemoteTableQueue.open(database, table.options, pool=pool, session=self._session, lease=lease)
            for name, table in self._app.tables.items()
            if name not in excluded
        }
        self._queues = [self._jobs, *self._tables.values()]

    def loops(self) -> list[Loop]:
        """Return the loops, which run from the start to the stop."""
        jobs, offline_after = self._jobs, self._options.offline_after
        scheduler = self._app._scheduler()  # there may be no node with a database
        upkeep = MaintenanceLoops(self._database, retention=self.retention, scheduler=scheduler)
        return [
            Loop(name="howdah listen", run=jobs.listen),
            Loop(name="howdah depth", run=self._depth.run),
            Loop(name="howdah upkeep", run=upkeep.run),
            periodic(min(OFFLINE_EVERY, offline_after / 4), self._mark_offline, name="silent workers"),
            periodic(min(RESET_EVERY, offline_after / 4), jobs.reset, name="reset of jobs"),
            periodic(REFRESH_EVERY, jobs.refresh, name="holds"),
            periodic(PRUNE_EVERY, jobs.reports.prune, name="old reports"),
            periodic(PRUNE_EVERY, self._prune_row_leases, name="old leases on rows"),
            *(periodic(each.reset_every, each.reset, name=f"reset of {name}") for name, each in self._tables.items()),
        ]

    async def run(self) -> None:
        """Serve HTTP until :meth:`stop`."""
        url = url_of(self.sockets, self._options)
        self._http = http_server(self.app, self._options)
        self._http.should_exit = self._stopped
        log.info("the control plane listens on %s", url)
        self.url().set_result(url)
        await self._http.serve(list(self.sockets))
        log.info("the control plane stops")

    def url(self) -> asyncio.Future[str]:
        """Return the future URL of the server, which is set when it listens."""
        if self._url is None:
            self._url = asyncio.get_running_loop().create_future()
        return self._url

    def stop(self, *, now: bool = False) -> None:
        """Accept no more requests and end the long polls; other running requests may finish."""
        self._stopped = True
        for queue in self._queues:
            queue.cancel_waits()
        if self._dashboard is not None:
            self._dashboard.stop()
        if self._http is not None:
            self._http.should_exit = True

    async def close(self) -> None:
        """Close the connections."""
        self._metrics.stop()
        try:
            for queue in self._queues:
                await queue.close()
            if self._dashboard is not None:
                await self._dashboard.close()
            await self._session.close()
            await self._app.close()
        finally:
            if self._pool is not None:
                self._pool.terminate()

    async def _mark_offline(self) -> None:
        """Set workers offline that sent no heartbeat for too long, and expire their leases; not after an outage."""
        judged = await self._contact.note()
        if not judged.workers:
            return
        rows = await self._session.fetch(self._sql["set_offline"], self._options.offline_after, judged.until)
        if rows:
            telemetry.emit("fleet.offline", nodes=[row["id"] for row in rows])
            log.warning("%d workers went silent: %s", len(rows), [row["id"] for row in rows])

    async def _prune_row_leases(self) -> None:
        """Delete leases on rows of tables that are no longer served."""
        await self._session.fetch(self._sql["prune_rows"], max(REPORT_TTL, 2 * self._options.offline_after))

    async def _ready(self) -> str | None:
        try:
            await self._session.fetchval("select 1", timeout=2)
        except Exception:
            return "the database does not answer"
        return None
