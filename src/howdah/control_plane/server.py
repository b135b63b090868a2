"""HTTP server of the control plane: wiring, maintenance loops, start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
from howdah.loops import every
from howdah.maintenance import MaintenanceLoops
from howdah.maintenance.pruner import DAY, DEFAULT_RETENTION, Retention
from howdah.node.contact import Contact
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import QueueDepth
from howdah.postgres import migrate, sql
from howdah.remote.capabilities import needs_database

log = logging.getLogger("howdah")

SESSIONS = 3
"""Connections for the short statements on workers and tokens."""
WEEK = 7 * DAY
OFFLINE_EVERY = 5.0
RESET_EVERY = 2.0
PRUNE_EVERY = 60.0
SHUTDOWN_TIMEOUT = 0.5
"""Seconds that maintenance loops have to end at shutdown."""


class ControlPlaneServer:
    """A control plane for one application. Any number of replicas may run; each also runs the maintenance loops."""

    def __init__(self, app: Howdah, options: ServeOptions) -> None:
        self._app = app
        self._options = options
        self._database = app.database
        self._stopping = asyncio.Event()
        self._queues: list[RemoteJobQueue | RemoteTableQueue] = []
        self._dashboard: Dashboard | None = None
        self._http: HttpServer | None = None
        self._url: asyncio.Future[str] | None = None
        self._sql = sql.load("howdah.control_plane", schema=self._database.schema)
        self._session = SessionPool(self._database, "fleet", SESSIONS)
        self._contact = Contact(self._database, self._session, lease=options.offline_after, remote=True)

    @property
    def retention(self) -> Retention:
        """Retention of finished jobs: that of the application, else a week."""
        own = self._app.retention
        return Retention(done=WEEK, failed=WEEK) if own is DEFAULT_RETENTION else own

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Starlette]:
        """Yield the ASGI application, with the maintenance loops running while the block lasts."""
        options, database = self._options, self._database
        await migrate.check(database)
        guarded = options.auth == "token"
        auth = Authenticator(database, self._session, guarded=guarded, rate=options.rate, refusals=options.refusals)
        await auth.check()
        pool = await database.pool(options.pool)
        jobs = RemoteJobQueue(database, pool, lease=options.offline_after, poll=options.poll, notify=options.notify)
        excluded = needs_database(self._app)
        for name, why in sorted(excluded.items()):
            log.info("%s is not offered over HTTP, only to nodes with the database: %s", name, why)
        tables = {
            name: await RemoteTableQueue.open(
                database, table.options, pool=pool, session=self._session, lease=options.offline_after
            )
            for name, table in self._app.tables.items()
            if name not in excluded
        }
        self._queues = [jobs, *tables.values()]
        workers = WorkersApi(
            database,
            options,
            auth=auth,
            session=self._session,
            jobs=jobs,
            tables=tables,
            needs_database=excluded,
        )
        depth = QueueDepth(database)
        metrics = Metrics(depth=depth)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics)
        api = HttpApi(
            auth,
            workers,
            WorkApi(database, auth=auth, session=self._session, jobs=jobs, tables=tables),
            JobsApi(self._app, database, self._session),
            largest_body=options.largest_body,
            ready=self._ready,
            metrics=lambda: generate_latest(registry),
        )
        if options.dashboard:
            self._dashboard = make_dashboard(self._app, auth, options)
            redirects = [Route(path, to_dashboard, methods=["GET"]) for path in ("/", PATH)]
            api.app.router.routes += [*redirects, Mount(PATH, self._dashboard)]
        metrics.start()
        scheduler = self._app._scheduler() if self._app.schedules else None  # there may be no node with a database
        upkeep = MaintenanceLoops(database, retention=self.retention, scheduler=scheduler)
        tasks = [
            asyncio.create_task(jobs.listen(self._stopping), name="howdah listen"),
            asyncio.create_task(depth.run(self._stopping), name="howdah depth"),
            asyncio.create_task(upkeep.run(self._stopping), name="howdah upkeep"),
            self._every(min(OFFLINE_EVERY, options.offline_after / 4), self._mark_offline, "silent workers"),
            self._every(min(RESET_EVERY, options.offline_after / 4), jobs.reset, "reset of jobs"),
            self._every(REFRESH_EVERY, jobs.refresh, "holds"),
            self._every(PRUNE_EVERY, jobs.reports.prune, "old reports"),
            self._every(PRUNE_EVERY, self._prune_row_leases, "old leases on rows"),
            *(self._every(table.reset_every, table.reset, f"reset of {name}") for name, table in tables.items()),
        ]
        try:
            yield api.app
        finally:
            self.stop()
            await asyncio.wait(tasks, timeout=SHUTDOWN_TIMEOUT)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            metrics.stop()
            await jobs.close()
            for table in tables.values():
                await table.close()
            if self._dashboard is not None:
                await self._dashboard.close()
            await self._session.close()
            await self._app.close()
            pool.terminate()

    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        options = self._options
        sockets = bind(options.host, options.port)
        url = url_of(sockets, options)
        try:
            async with self.open() as app:
                self._http = http_server(app, options)
                self._http.should_exit = self._stopping.is_set()
                log.info("the control plane listens on %s", url)
                self._url_future().set_result(url)
                await self._http.serve(sockets)
                log.info("the control plane stops")
        finally:
            for each in sockets:
                each.close()

    async def listening(self) -> str:
        """Wait until the server listens; return its URL."""
        return await asyncio.shield(self._url_future())

    def _url_future(self) -> asyncio.Future[str]:
        if self._url is None:
            self._url = asyncio.get_running_loop().create_future()
        return self._url

    def stop(self) -> None:
        """Accept no more requests and end the long polls; other running requests may finish."""
        self._stopping.set()
        for queue in self._queues:
            queue.cancel_waits()
        if self._dashboard is not None:
            self._dashboard.stop()
        if self._http is not None:
            self._http.should_exit = True

    def _every(self, seconds: float, tick: object, name: str) -> asyncio.Task[None]:
        loop = every(seconds, tick, name=name, stop=self._stopping)  # type: ignore[arg-type]
        return asyncio.create_task(loop, name=f"howdah {name}")

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
