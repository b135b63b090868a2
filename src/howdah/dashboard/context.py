"""Context of all pages: the application, its administration, a small connection pool, and snapshots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from howdah.app import Howdah
from howdah.audit import AuditTrail
from howdah.diagnose.why import Why
from howdah.errors import ConfigError, DatabaseUnreachable
from howdah.events.admin import LogAdmin
from howdah.events.read import EventReader
from howdah.job import Enqueued, NewJob
from howdah.jobs.admin import Admin
from howdah.observe.sampler import Counting
from howdah.observe.snapshot import Snapshot, SnapshotReader
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, Database
from howdah.postgres.dsn import hide_password
from howdah.redact import Redact
from howdah.table.admin import counting
from howdah.table.plan import TablePlan

log = logging.getLogger("howdah")

POOL = 4
"""Largest number of connections of the dashboard."""
PAGE_TIMEOUT = 2.0
"""Statement timeout of a page, in seconds."""
SNAPSHOT_TTL = 0.5
"""Seconds for which a snapshot is shared by all requests."""
PULSE = "pulse"
"""The topic with the values for the charts, which are sent as JSON."""
READ_BY_INDEX = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true)
"""


class DashboardContext:
    """Opened at first use; :meth:`close` ends it."""

    def __init__(self, app: Howdah, database: Database, trace_url: str | None = None) -> None:
        self.app = app
        self.trace_url = trace_url
        """Where traces are shown, with ``{trace}`` for the id."""
        self.database = database
        self.sql = sql.load("howdah.dashboard", schema=self.database.schema)
        self.admin = Admin(self.database, self.pool)
        self.log = LogAdmin(self.database, self.pool)
        self.why = Why(self.database, self.pool)
        self.reader = EventReader(self.database, self.pool, app.types)
        self.redact: Redact = app.redact
        self._trail = AuditTrail(self.database.schema)
        self._counted: list[Counting] | None = None
        self._snapshots = SnapshotReader(self.database, tables=lambda: self._counted or ())
        self._opening: asyncio.Task[asyncpg.Pool] | None = None

    async def pool(self) -> asyncpg.Pool:
        """The pool of the dashboard."""
        if self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.create_task(self.database.pool(POOL))
        return await asyncio.shield(self._opening)

    @asynccontextmanager
    async def read_only(self) -> AsyncIterator[Any]:
        """Open a connection with one read-only snapshot and a statement timeout."""
        try:
            async with (
                (await self.pool()).acquire() as conn,
                conn.transaction(isolation="repeatable_read", readonly=True),
            ):
                await conn.execute(READ_BY_INDEX, str(int(PAGE_TIMEOUT * 1000)))
                yield conn
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self.database.dsn)}: {error}") from error

    async def fetch(self, verb: str, *args: Any) -> list[Any]:
        """Return the rows of one of the dashboard's own statements."""
        async with self.read_only() as conn:
            rows: list[Any] = await conn.fetch(self.sql[verb], *args)
            return rows

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue a job, and audit it."""
        async with (await self.pool()).acquire() as conn, conn.transaction():
            made = await self.app.enqueue(job, conn)
            if made.fresh:
                facts = {"kind": job.kind, "queue": job.queue}
                await self._trail.record(conn, "enqueue", "job", [made.id], after=facts)
        return made

    async def snapshot(self) -> Snapshot:
        """Return a snapshot, shared by all requests within half a second."""
        if self._counted is None:
            self._counted = await self._count_tables()
        return await self._snapshots.read(within=SNAPSHOT_TTL)

    async def _count_tables(self) -> list[Counting]:
        """Return how the application's tables are counted; missing tables are left out and reported by health."""
        counted = []
        async with (await self.pool()).acquire() as conn:
            for table in self.app.tables.values():
                try:
                    counted.append(counting(await TablePlan.make(conn, table.options, self.database.schema)))
                except ConfigError as error:
                    log.warning("the dashboard cannot count %s: %s", table.name, error)
        return counted

    def chart_values(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the values sent to the charts every second."""
        return {
            "at": snapshot.at.timestamp(),
            "queued": snapshot.totals.queued,
            "running": snapshot.totals.running,
            "minutes": [[m.at.timestamp(), m.done, m.failed, m.retried] for m in snapshot.minutes],
        }

    async def topics(self) -> dict[str, Any]:
        """Return the topics of live updates; a topic changes its value when pages about it change."""
        [row] = await self.fetch("moment")
        return {**row, PULSE: self.chart_values(await self.snapshot())}

    async def close(self) -> None:
        """Close the connections."""
        await self._snapshots.close()
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                opening.result().terminate()
