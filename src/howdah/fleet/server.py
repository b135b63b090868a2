"""Server: one control plane from start to end. As many replicas as wanted; each keeps house, safely at once."""

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
from howdah.dashboard.dashboard import Dashboard
from howdah.fleet.able import needs_database
from howdah.fleet.belief import REMEMBER
from howdah.fleet.clerk import Clerk
from howdah.fleet.desk import LOOK_FOR_HOLDS, JobDesk
from howdah.fleet.door import Door
from howdah.fleet.http import Api
from howdah.fleet.listen import Http, bind, http_server, url_of
from howdah.fleet.options import ServeOptions
from howdah.fleet.plane import Plane
from howdah.fleet.reception import PATH, dashboard, to_dashboard
from howdah.fleet.sessions import Sessions
from howdah.fleet.table_desk import TableDesk
from howdah.observe.depth import Depth
from howdah.observe.prometheus import Metrics
from howdah.pg import migrate, sql
from howdah.service import every
from howdah.upkeep.loops import Upkeep
from howdah.upkeep.pruner import DAY, Retention

log = logging.getLogger("howdah")

SESSIONS = 3
"""Connections for what is asked about workers and tokens; short questions, and many at once."""
WEEK = 7 * DAY
SILENCE_EVERY = 5.0
RESET_EVERY = 2.0
FORGET_EVERY = 60.0
SHUTDOWN = 0.5
"""Seconds the upkeep has to finish what it is at."""


class Server:
    """A control plane for one application."""

    def __init__(self, app: Howdah, options: ServeOptions) -> None:
        self._app = app
        self._options = options
        self._database = app.database
        self._over = asyncio.Event()
        self._desks: list[JobDesk | TableDesk] = []
        self._dashboard: Dashboard | None = None
        self._http: Http | None = None
        self._url: asyncio.Future[str] | None = None
        self._sql = sql.load("howdah.fleet", schema=self._database.schema)
        self._session = Sessions(self._database, "fleet", SESSIONS)

    @property
    def retention(self) -> Retention:
        """How long finished jobs are kept: as the application says, else a week."""
        said = self._app.retention
        return Retention(done=WEEK, failed=WEEK) if said == Retention() else said

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Starlette]:
        """The application to serve, with its house kept, while the block lasts."""
        options, database = self._options, self._database
        await migrate.check(database)
        guarded = options.auth == "token"
        door = Door(database, self._session, guarded=guarded, rate=options.rate, refusals=options.refusals)
        await door.check()
        pool = await database.pool(options.pool)
        jobs = JobDesk(database, pool, lease=options.offline_after, poll=options.poll, notify=options.notify)
        apart = needs_database(self._app)
        for name, why in sorted(apart.items()):
            log.info("%s is not offered over HTTP, only to nodes with the database: %s", name, why)
        tables = {
            name: await TableDesk.open(
                database, table.options, pool=pool, session=self._session, lease=options.offline_after
            )
            for name, table in self._app.tables.items()
            if name not in apart
        }
        self._desks = [jobs, *tables.values()]
        plane = Plane(database, options, door=door, session=self._session, jobs=jobs, tables=tables, apart=apart)
        depth = Depth(database)
        metrics = Metrics(depth=depth)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics)
        api = Api(
            door,
            plane,
            Clerk(self._app, database, self._session),
            largest_body=options.largest_body,
            ready=self._ready,
            metrics=lambda: generate_latest(registry),
        )
        if options.dashboard:
            self._dashboard = dashboard(self._app, door, options)
            ways = [Route(path, to_dashboard, methods=["GET"]) for path in ("/", PATH)]
            api.app.router.routes += [*ways, Mount(PATH, self._dashboard)]
        metrics.start()
        scheduler = self._app._scheduler() if self._app.schedules else None  # there may be no other node
        upkeep = Upkeep(database, retention=self.retention, scheduler=scheduler)
        beside = [
            asyncio.create_task(jobs.listen(self._over), name="howdah listen"),
            asyncio.create_task(depth.run(self._over), name="howdah depth"),
            asyncio.create_task(upkeep.run(self._over), name="howdah upkeep"),
            self._every(min(SILENCE_EVERY, options.offline_after / 4), self._silence, "silent workers"),
            self._every(RESET_EVERY, jobs.reset, "reset of jobs"),
            self._every(LOOK_FOR_HOLDS, jobs.look, "holds"),
            self._every(FORGET_EVERY, jobs.belief.forget, "old reports"),
            self._every(FORGET_EVERY, self._forget_rows, "old leases on rows"),
            *(self._every(desk.reset_every, desk.reset, f"reset of {name}") for name, desk in tables.items()),
        ]
        try:
            yield api.app
        finally:
            self.stop()
            await asyncio.wait(beside, timeout=SHUTDOWN)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            metrics.stop()
            await jobs.close()
            for desk in tables.values():
                await desk.close()
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
                self._http.should_exit = self._over.is_set()
                log.info("the control plane listens on %s", url)
                self._where().set_result(url)
                await self._http.serve(sockets)
                log.info("the control plane stops")
        finally:
            for each in sockets:
                each.close()

    async def listening(self) -> str:
        """Where it is reached, once it is."""
        return await asyncio.shield(self._where())

    def _where(self) -> asyncio.Future[str]:
        if self._url is None:
            self._url = asyncio.get_running_loop().create_future()
        return self._url

    def stop(self) -> None:
        """Take no more requests and let go who waits; requests under way may end."""
        self._over.set()
        for desk in self._desks:
            desk.turn_away()
        if self._dashboard is not None:
            self._dashboard.stop()
        if self._http is not None:
            self._http.should_exit = True

    def _every(self, seconds: float, tick: object, name: str) -> asyncio.Task[None]:
        loop = every(seconds, tick, name=name, stop=self._over)  # type: ignore[arg-type]
        return asyncio.create_task(loop, name=f"howdah {name}")

    async def _silence(self) -> None:
        """Workers that have said nothing for too long are offline, and what they held is free."""
        rows = await self._session.fetch(self._sql["silence"], self._options.offline_after)
        if rows:
            telemetry.emit("fleet.offline", nodes=[row["id"] for row in rows])
            log.warning("%d workers went silent: %s", len(rows), [row["id"] for row in rows])

    async def _forget_rows(self) -> None:
        """Leases on rows of tables that are not served any more."""
        await self._session.fetch(self._sql["forget_rows"], max(REMEMBER, 2 * self._options.offline_after))

    async def _ready(self) -> str | None:
        try:
            await self._session.fetchval("select 1", timeout=2)
        except Exception:
            return "the database does not answer"
        return None
