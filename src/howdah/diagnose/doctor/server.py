"""Checks of the server: its version, its clock, poolers in between, settings, disk and connections."""

from __future__ import annotations

import asyncio
import secrets
from datetime import datetime
from typing import Any

import asyncpg

from howdah.diagnose.doctor.finding import SILENT, Fetch, Finding, bad, ok, warn
from howdah.errors import ConfigError
from howdah.loops import wait
from howdah.postgres import settings, sql
from howdah.postgres.database import Database
from howdah.postgres.foreign import sqlstate

OLDEST = 140000
SKEW = 1.0
"""Largest accepted clock difference, in seconds."""
HEARD_WITHIN = 2.0
DISK_PATIENCE = 5.0
"""Timeout in seconds for writing a few megabytes."""
FULL, TOO_FULL = 0.8, 0.95
COMMITS = "select setting, reset_val from pg_catalog.pg_settings where name = 'synchronous_commit'"
"""The value on this connection, and the default of the same role and database."""


def server(row: Any) -> Finding:
    """Check that the server's version is supported and that it is writable."""
    if row["number"] < OLDEST:
        return bad("database", f"PostgreSQL {row['version']}", "upgrade it to 14 or later")
    if row["standby"]:
        return bad("database", f"PostgreSQL {row['version']}, a standby that cannot be written", "name the primary")
    return ok("database", f"PostgreSQL {row['version']}")


def unreachable(error: BaseException) -> Finding:
    """Return why there is no connection, and the fix."""
    fixes = {
        "53300": "close connections, raise max_connections or the CONNECTION LIMIT, or put a pooler in between",
        "53100": "free space on the disk of the server",
        "53200": "give the server more memory, or fewer connections",
    }
    return bad("database", str(error), fixes.get(sqlstate(error) or "", "start it, or correct the DSN"))


def clock(at: datetime, asked: datetime, answered: datetime) -> Finding:
    """Compare the server's clock with this machine's, as precisely as the round trip allows."""
    skew = (at - asked - (answered - asked) / 2).total_seconds()
    if abs(skew) > SKEW + (answered - asked).total_seconds() / 2:
        fact = f"the server is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine"
        return warn("clock", fact, "nothing depends on it; logs of both are hard to compare")
    return ok("clock", f"within {max(abs(skew), 0.001):.3f} s of this machine")


class ServerDoctor:
    """Examines the way to the server; ``conn`` believes to be at the process ``pid``."""

    def __init__(self, database: Database, conn: Any, pid: int, fetch: Fetch) -> None:
        self._database = database
        self._conn = conn
        self._pid = pid
        self._fetch = fetch

    async def notify(self) -> list[Finding]:
        """Send a notification to itself; whether it arrives also shows the pooler's mode."""
        took = await self._round_trip()
        if took is not None:
            return [self._pooler(heard=True), ok("notify", f"a notification took {took * 1000:.1f} ms")]
        fact, fix = "notifications do not arrive, so nodes poll", "let nodes connect without a pooler"
        return [self._pooler(heard=False), warn("notify", fact, fix)]

    async def settings(self) -> list[Finding]:
        """Check for settings of the role or the database that break a function or a guarantee."""
        try:
            await settings.check(self._conn, writes=True)
        except ConfigError as error:
            fact, _, fix = str(error).rpartition("; ")
            return [bad("settings", fact, fix)]
        now, default = await self._conn.fetchrow(COMMITS)
        if now == "off":
            fact = "synchronous_commit is off: a crash of the server forgets jobs and outcomes of the last moment"
            return [warn("settings", fact, "set it to on for the role that Howdah uses")]
        if default == "off":
            fact = (
                "synchronous_commit is off: Howdah's own connections turn it on, but a crash of the server forgets what"
                " your own transactions enqueued in the last moment"
            )
            return [warn("settings", fact, "set it to on for the roles that enqueue")]
        return [ok("settings", "those of this role and database are fit")]

    async def disk(self) -> list[Finding]:
        """Check that there is disk space for a few megabytes."""
        statements = sql.load("howdah.maintenance", schema=self._database.schema)
        try:
            async with self._conn.transaction(readonly=True):
                await self._conn.execute(statements["doctor_scratch"], str(int(DISK_PATIENCE * 1000)))
                written = await self._conn.fetchval(statements["doctor_disk"])
        except asyncpg.DiskFullError as error:
            fix = "free space on the disk of the server; until then nothing can be enqueued or recorded"
            return [bad("disk", f"it is full: {error}", fix)]
        except asyncpg.ConfigurationLimitExceededError as error:
            return [ok("disk", f"not examined: {error}")]
        return [ok("disk", f"there is room for another {written // 1_000_000} MB")]

    async def connections(self) -> list[Finding]:
        """Check how many connections are left, and whether the pools of live nodes could need more."""
        [row] = await self._fetch("connections", SILENT)
        used, most = row["used"], row["most"]
        fact = f"{used} of {most} in use"
        if used >= FULL * most:
            judge = bad if used >= TOO_FULL * most else warn
            fix = "raise max_connections, or put a pooler in between"
            return [judge("connections", f"{fact}, most by {', '.join(row['groups'])}", fix)]
        might = used - row["open"] + row["pools"]
        if might > most and not self._database.pooled:
            fact += f", but the pools of live nodes ({row['nodes']}) can make it {might}"
            fix = f"set max_connections to {might + 20} or more, give nodes fewer slots, or put a pooler in between"
            return [warn("connections", fact, fix)]
        if might > used and not self._database.pooled:
            fact += f"; the pools of live nodes ({row['nodes']}) can make it {might}"
        return [ok("connections", fact)]

    async def _round_trip(self) -> float | None:
        channel, heard = f"howdah_doctor_{secrets.token_hex(6)}", asyncio.Event()
        listening = await self._database.connect("doctor")
        try:
            await listening.add_listener(channel, lambda *_: heard.set())
            began = asyncio.get_running_loop().time()
            await self._conn.execute("select pg_notify($1, '')", channel)
            return asyncio.get_running_loop().time() - began if await wait(heard, HEARD_WITHIN) else None
        finally:
            listening.terminate()

    def _pooler(self, *, heard: bool) -> Finding:
        if self._database.pooled:
            if heard:
                return ok("pooler", "a session pooler stands in between: wake-ups arrive, connections are not shared")
            return ok("pooler", "a transaction pooler stands in between and is allowed for")
        if self._conn.get_server_pid() != self._pid:
            fact = "a pooler stands in between that hides itself"
            return warn("pooler", fact, "connect directly, or take howdah's settings out of ignore_startup_parameters")
        return ok("pooler", "none in between")
