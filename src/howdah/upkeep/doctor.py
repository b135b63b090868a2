"""Doctor: examine the database and the nodes, and say what to do. Changes nothing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, Protocol

import asyncpg

from howdah.errors import DatabaseUnreachable
from howdah.pg import migrate, sql
from howdah.pg.database import BROKEN, Database
from howdah.service import wait
from howdah.upkeep.doctor_log import LogDoctor
from howdah.upkeep.finding import Finding, bad, ok, some, span, statement, warn
from howdah.version import __version__

PATIENCE = 5.0
"""Seconds each look may take."""
OLDEST_SERVER = 140000
SAMPLE = (10_000, 20, 500)
"""The newest jobs, and so many places in history with so many jobs each."""
LONG = 60.0
TOO_LONG = 3600.0
SILENT = 60.0
MANY_DEAD = 100_000
MANY_UNOWNED = 1_000_000
SKEW = 1.0


class Check(Protocol):
    """One look at one thing."""

    __name__: str

    def __call__(self) -> Awaitable[list[Finding]]: ...


class Doctor:
    """Examines one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = sql.load("howdah.upkeep", schema=database.schema)
        self._conn: asyncpg.Connection = None
        self._log = LogDoctor(database, self._run)

    async def examine(self) -> list[Finding]:
        """Every finding; stops at a database that does not answer or a schema this code does not know."""
        try:
            self._conn = await self._database.connect("doctor")
        except (DatabaseUnreachable, asyncpg.PostgresError) as error:
            return [bad("database", str(error), "start it, or correct the DSN")]
        try:
            server, asked, answered = await self._server()
            findings = [_server(server), await self._schema()]
            if any(finding.verdict == "bad" for finding in findings):
                return findings
            findings += [self._pooler(server), _clock(server["at"], asked, answered)]
            for check in self._checks():
                findings += await self._try(check)
            return findings
        finally:
            self._conn.terminate()

    def _checks(self) -> list[Check]:
        return [
            self._notify,
            self._places,
            self._horizon,
            self._vacuum,
            self._partitions,
            self._connections,
            self._nodes,
            self._leases,
            self._paused,
            self._unserved,
            self._log.gate,
            self._log.frontier,
            self._log.consumers,
            self._log.leader,
        ]

    async def _try(self, check: Check) -> list[Finding]:
        name = check.__name__.strip("_")
        try:
            return await check()
        except asyncpg.QueryCanceledError:
            return [
                warn(name, f"could not be examined within {PATIENCE:g} s", "try again when the server is less busy")
            ]
        except (asyncpg.PostgresError, *BROKEN) as error:
            return [warn(name, f"could not be examined: {error}", "see whether this role may read it")]

    async def _fetch(self, verb: str, *args: Any) -> list[Any]:
        return await self._run(self._sql[f"doctor_{verb}"], *args)

    async def _run(self, statement: str, *args: Any) -> list[Any]:
        async with self._conn.transaction(readonly=True):
            await self._conn.execute(
                "select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true)",
                str(int(PATIENCE * 1000)),
            )
            rows: list[Any] = await self._conn.fetch(statement, *args)
            return rows

    async def _server(self) -> tuple[Any, datetime, datetime]:
        asked = datetime.now(UTC)
        [row] = await self._conn.fetch(self._sql["doctor_server"])
        return row, asked, datetime.now(UTC)

    async def _schema(self) -> Finding:
        found, needed = await migrate.version(self._database, self._conn), migrate.needed()
        if found == needed:
            return ok("schema", f"{self._database.schema!r} is at version {found}")
        if found > needed:
            return bad("schema", f"it is at version {found}, this code knows only {needed}", "upgrade howdah")
        return bad("schema", f"it is at version {found}, this code needs {needed}", "run `howdah migrate`")

    def _pooler(self, server: Any) -> Finding:
        if self._database.pooled:
            return ok("pooler", "a transaction pooler stands in between and is allowed for")
        if self._conn.get_server_pid() != server["pid"]:
            fact = "a pooler stands in between that hides itself"
            return warn("pooler", fact, "connect directly, or take howdah's settings out of ignore_startup_parameters")
        return ok("pooler", "none in between")

    async def _notify(self) -> list[Finding]:
        channel, heard = f"howdah_doctor_{secrets.token_hex(6)}", asyncio.Event()
        listening = await self._database.connect("doctor")
        try:
            await listening.add_listener(channel, lambda *_: heard.set())
            began = asyncio.get_running_loop().time()
            await self._conn.execute("select pg_notify($1, '')", channel)
            if await wait(heard, 2.0):
                took = (asyncio.get_running_loop().time() - began) * 1000
                return [ok("notify", f"a notification took {took:.1f} ms")]
        finally:
            listening.terminate()
        return [warn("notify", "notifications do not arrive, so nodes poll", "let nodes connect without a pooler")]

    async def _places(self) -> list[Finding]:
        [row] = await self._fetch("misplaced", *SAMPLE)
        if row["wrong"] or row["overlapping"]:
            fact = f"jobs in two places or in none: {some(row['wrong'])}; overlapping runs: {row['overlapping']}"
            return [bad("places", fact, "report this with the version and `howdah job ID --json`: it is a bug")]
        return [ok("places", f"each of {row['looked']:,} jobs looked at is in exactly one place")]

    async def _horizon(self) -> list[Finding]:
        rows = await self._fetch("horizon", LONG)
        if not rows:
            return [ok("horizon", "no transaction or slot keeps dead rows")]
        fixes = {
            "transaction": "end it, or select pg_terminate_backend(pid)",
            "prepared transaction": "commit prepared or rollback prepared",
            "replication slot": "let its reader catch up, or drop the slot",
        }
        findings = []
        for row in rows:
            old = "" if row["age"] is None else f" for {span(row['age'])}"
            fact = f"{row['what']} {row['who']} keeps dead rows{old}: {statement(row['doing'])}"
            judge = bad if (row["age"] or 0) > TOO_LONG else warn
            findings.append(judge("horizon", fact, fixes[row["what"]]))
        return findings

    async def _vacuum(self) -> list[Finding]:
        rows = await self._fetch("dead", self._database.schema)
        on = all(row["switched_on"] for row in rows)
        off = [row["name"] for row in rows if row["disabled"]]
        if not on or off:
            fact = f"autovacuum is off{' for ' + some(off) if on else ''}"
            return [bad("vacuum", fact, "turn it on: tables of waiting jobs change all the time")]
        many = [row for row in rows if row["dead"] > max(MANY_DEAD, row["live"] // 5)]
        if many:
            said = ", ".join(f"{row['name']} {row['dead']:,} ({row['live']:,} live)" for row in many[:3])
            return [warn("vacuum", f"many dead rows: {said}", "see horizon; else give autovacuum more room")]
        return [ok("vacuum", f"autovacuum is on, {sum(row['dead'] for row in rows):,} dead rows")]

    async def _partitions(self) -> list[Finding]:
        [row] = await self._fetch("partitions", MANY_UNOWNED + 1)
        if row["ahead"] < 2:
            judge = warn if row["ahead"] else bad
            return [judge("partitions", f"{row['ahead']} ahead", "run a worker: its upkeep makes them")]
        if row["unowned"] > MANY_UNOWNED:
            fact = f"more than {MANY_UNOWNED:,} jobs in the default partition"
            return [warn("partitions", fact, "they are pruned row by row; keep a worker running")]
        return [ok("partitions", f"{row['ahead']} ahead, {row['unowned']:,} jobs in the default partition")]

    async def _connections(self) -> list[Finding]:
        [row] = await self._fetch("connections")
        fact = f"{row['used']} of {row['most']} in use"
        if row["used"] < 0.8 * row["most"]:
            return [ok("connections", fact)]
        judge = bad if row["used"] >= 0.95 * row["most"] else warn
        return [judge("connections", fact, "raise max_connections, or put a pooler in between")]

    async def _nodes(self) -> list[Finding]:
        [row] = await self._fetch("nodes", SILENT)
        findings = [ok("nodes", f"{row['live']} live")]
        if row["silent"]:
            fact = f"silent for more than {span(SILENT)}: {some(row['silent'])}"
            findings = [warn("nodes", fact, "see whether they still run; a live node declares them offline")]
        if row["deaf"]:
            findings.append(warn("nodes", f"no wake-ups arrive at {some(row['deaf'])}, they poll", "see notify"))
        versions = sorted({*row["versions"], __version__})
        if len(versions) > 1:
            fact = f"{', '.join(versions)} (this is {__version__})"
            findings.append(warn("versions", fact, "finish the roll-out"))
        return findings

    async def _leases(self) -> list[Finding]:
        [row] = await self._fetch("expired", LONG)
        if row["leases"]:
            fact = f"{row['leases']} expired and not taken back for up to {span(row['longest'])}"
            return [bad("leases", fact, "start a worker: its upkeep returns the jobs to their queues")]
        return [ok("leases", "none is overdue")]

    async def _paused(self) -> list[Finding]:
        return [
            warn(
                "paused",
                f"queue {row['name']!r} was paused {span(row['age'] or 0)} ago"
                f"{' by ' + row['paused_by'] if row['paused_by'] else ''}; jobs waiting: {row['jobs']:,}",
                f"howdah resume {row['name']}",
            )
            for row in await self._fetch("paused")
        ] or [ok("paused", "no paused queue has jobs")]

    async def _unserved(self) -> list[Finding]:
        rows = await self._fetch("unserved", SILENT)
        if not rows:
            return [ok("unserved", "every waiting job has a live node for it")]
        said = ", ".join(f"{row['jobs']:,} of {row['kind']} in {row['queue']}" for row in rows[:5])
        return [warn("unserved", f"no live node takes {said}", "start a worker with these tasks and queues")]


def _server(row: Any) -> Finding:
    if row["number"] < OLDEST_SERVER:
        return bad("database", f"PostgreSQL {row['version']}", "upgrade it to 14 or later")
    if row["standby"]:
        return bad("database", f"PostgreSQL {row['version']}, a standby that cannot be written", "name the primary")
    return ok("database", f"PostgreSQL {row['version']}")


def _clock(at: datetime, asked: datetime, answered: datetime) -> Finding:
    skew = (at - asked - (answered - asked) / 2).total_seconds()
    if abs(skew) > SKEW + (answered - asked).total_seconds() / 2:
        fact = f"the server is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine"
        return warn("clock", fact, "nothing depends on it; logs of both are hard to compare")
    return ok("clock", f"within {max(abs(skew), 0.001):.3f} s of this machine")
