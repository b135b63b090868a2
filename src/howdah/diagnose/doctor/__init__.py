"""`howdah doctor`: checks of the server, the tables, the event log and the nodes, each with its fix. Read-only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg

from howdah.diagnose.doctor.events import LogDoctor
from howdah.diagnose.doctor.server import ServerDoctor, StorageDoctor, check_clock, check_version, unreachable
from howdah.diagnose.doctor.work import TableDoctor, WorkDoctor
from howdah.diagnose.finding import Finding, bad, ok, some, warn
from howdah.errors import DatabaseUnreachable, SchemaError
from howdah.postgres import migrate, sql
from howdah.postgres.database import BROKEN, Database
from howdah.table.options import TableOptions

CHECK_TIMEOUT = 5.0
"""Timeout of each check, in seconds."""

Check = tuple[str, Callable[[], Awaitable[list[Finding]]]]
"""The name of a check, and the check."""


class Doctor:
    """Examines one database, and the application's tables in it when they are named."""

    def __init__(self, database: Database, tables: Sequence[TableOptions] = ()) -> None:
        self._database = database
        self._tables = tables
        self._sql = sql.load("howdah.maintenance", schema=database.schema)
        self._conn: asyncpg.Connection = None

    async def examine(self) -> list[Finding]:
        """Return all findings; stop at a database that does not answer or a schema of an unknown version."""
        try:
            self._conn = await self._database.connect("doctor")
        except (DatabaseUnreachable, asyncpg.PostgresError) as error:
            return [unreachable(error)]
        try:
            found, asked, answered = await self._server()
            findings = [check_version(found), await self._schema()]
            if any(finding.verdict == "bad" for finding in findings):
                return findings
            findings.append(check_clock(found["at"], asked, answered))
            for check in self._checks(found["pid"]):
                findings += await self._try(*check)
            return findings
        finally:
            self._conn.terminate()

    def _checks(self, pid: int) -> list[Check]:
        server = ServerDoctor(self._database, self._conn, pid, self._fetch)
        storage = StorageDoctor(self._database, self._fetch)
        work, log = WorkDoctor(self._fetch), LogDoctor(self._database, self._run)
        table = TableDoctor(self._database, self._fetch, self._run)
        return [
            ("settings", server.settings),
            ("disk", server.disk),
            ("notify", server.notify),
            ("places", work.places),
            ("repair", work.repair),
            ("horizon", storage.horizon),
            ("vacuum", storage.vacuum),
            ("partitions", storage.partitions),
            ("upkeep", storage.upkeep),
            ("connections", server.connections),
            ("nodes", work.nodes),
            ("leases", work.leases),
            ("paused", work.paused),
            ("unserved", work.unserved),
            ("schedules", work.schedules),
            *(("tables", partial(table.examine, options)) for options in self._tables),
            ("gate", log.gate),
            ("frontier", log.frontier),
            ("consumers", log.consumers),
            ("leader", log.leader),
        ]

    async def _try(self, name: str, check: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
        try:
            return await check()
        except asyncpg.QueryCanceledError:
            return [
                warn(
                    name, f"could not be examined within {CHECK_TIMEOUT:g} s", "try again when the server is less busy"
                )
            ]
        except (asyncpg.PostgresError, DatabaseUnreachable, *BROKEN) as error:
            return [
                warn(
                    name,
                    f"could not be examined: {error}",
                    "check the privileges of this role; deploy/roles.sql lists them",
                )
            ]

    async def _fetch(self, verb: str, *args: Any) -> list[Any]:
        return await self._run(self._sql[f"doctor_{verb}"], *args)

    async def _run(self, statement: str, *args: Any) -> list[Any]:
        async with self._conn.transaction(readonly=True):
            await self._conn.execute(
                "select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true)",
                str(int(CHECK_TIMEOUT * 1000)),
            )
            rows: list[Any] = await self._conn.fetch(statement, *args)
            return rows

    async def _server(self) -> tuple[Any, datetime, datetime]:
        asked = datetime.now(UTC)
        [row] = await self._conn.fetch(self._sql["doctor_server"])
        return row, asked, datetime.now(UTC)

    async def _schema(self) -> Finding:
        try:
            state, needed = await migrate.state(self._database, self._conn), migrate.needed()
        except SchemaError as error:
            return bad("schema", str(error), "use another schema")
        found = state.version
        if found == needed and (altered := await migrate.altered(self._database, self._conn)):
            fact = f"it is at version {found}, but this release has another text of migration {some(altered)}"
            return warn("schema", fact, "compare its functions with those of a new schema made by `howdah migrate`")
        if found == needed:
            return ok("schema", f"{self._database.schema!r} is at version {found}")
        works = f"works with code from version {state.works_from} on"
        if state.works:
            return ok("schema", f"{self._database.schema!r} is at version {found}, {works}")
        if found > needed:
            fact = f"it is at version {found}, this code knows only {needed}, and the schema {works}"
            return bad("schema", fact, "upgrade howdah")
        return bad("schema", f"it is at version {found}, this code needs {needed}", "run `howdah migrate`")
