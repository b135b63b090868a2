"""Checks of the server: version, clock, poolers, settings, disk, connections; vacuum, horizon and partitions."""

from __future__ import annotations

import asyncio
import secrets
from datetime import datetime
from typing import Any

import asyncpg

from howdah.contrib import sqlstate
from howdah.diagnose.finding import (
    LONG,
    SILENT,
    TOO_LONG,
    Fetch,
    Finding,
    Verdict,
    bad,
    end_transaction,
    ok,
    some,
    span,
    statement,
    warn,
)
from howdah.errors import ConfigError
from howdah.loops import wait
from howdah.postgres import settings, sql
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier, literal

OLDEST = 140000
SKEW = 1.0
"""Largest accepted clock difference, in seconds."""
NOTIFY_TIMEOUT = 2.0
DISK_TIMEOUT = 5.0
"""Timeout in seconds for writing a few megabytes."""
FULL, TOO_FULL = 0.8, 0.95
COMMITS = "select setting, reset_val from pg_catalog.pg_settings where name = 'synchronous_commit'"
"""The value on this connection, and the default of the same role and database."""
FAR_BEHIND = 100_000
"""Transactions a replication slot may be behind."""
MUCH_KEPT = 10 * 2**30
"""Bytes of WAL a replication slot may keep."""
MANY_DEAD = 100_000
MANY_UNOWNED = 1_000_000
STALLED = 86400.0
"""Seconds without a success after which upkeep is reported as a problem."""
RETRIED = {"grow": "workers try again every 5 seconds", "prune": "workers try again every hour, `howdah prune` at once"}
BLOATED = 256 * 2**20
"""Size in bytes below which a table with short-lived rows is never reported."""
ROW = 4000
"""Bytes per row such a table may have: twenty times what the rows need."""


def check_version(row: Any) -> Finding:
    """Check that the server's version is supported and that it is writable."""
    if row["number"] < OLDEST:
        return bad("database", f"PostgreSQL {row['version']}", "upgrade it to 14 or later")
    if row["standby"]:
        return bad("database", f"PostgreSQL {row['version']}, a read-only standby", "connect to the primary")
    return ok("database", f"PostgreSQL {row['version']}")


def unreachable(error: BaseException) -> Finding:
    """Return why there is no connection, and the fix."""
    fixes = {
        "53300": "close connections, raise max_connections or the CONNECTION LIMIT, or use a connection pooler",
        "53100": "free space on the disk of the server",
        "53200": "give the server more memory, or fewer connections",
    }
    return bad("database", str(error), fixes.get(sqlstate(error) or "", "start it, or correct the DSN"))


def check_clock(at: datetime, asked: datetime, answered: datetime) -> Finding:
    """Compare the server's clock with this machine's, as precisely as the round trip allows."""
    skew = (at - asked - (answered - asked) / 2).total_seconds()
    if abs(skew) > SKEW + (answered - asked).total_seconds() / 2:
        fact = f"the server is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine"
        return warn("clock", fact, "synchronise the clocks; Howdah uses only the server's, but times in logs differ")
    return ok("clock", f"within {max(abs(skew), 0.001):.3f} s of this machine")


class ServerDoctor:
    """Examines the connection and the server. ``pid``: the server process that ``conn`` talks to, by its own answer."""

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
        fact, fix = "notifications do not arrive, so nodes poll", "connect nodes without a transaction pooler"
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
            fact = "synchronous_commit is off: a crash of the server can lose the last jobs and outcomes"
            return [warn("settings", fact, "set it to on for the role that Howdah uses")]
        if default == "off":
            fact = (
                "synchronous_commit is off: Howdah's own connections turn it on, but a crash of the server can lose the"
                " last jobs that your own transactions enqueued"
            )
            return [warn("settings", fact, "set it to on for the roles that enqueue")]
        return [ok("settings", "the settings of this role and database are suitable")]

    async def disk(self) -> list[Finding]:
        """Check that there is disk space for a few megabytes."""
        statements = sql.load("howdah.maintenance", schema=self._database.schema)
        try:
            async with self._conn.transaction(readonly=True):
                await self._conn.execute(statements["doctor_scratch"], str(int(DISK_TIMEOUT * 1000)))
                written = await self._conn.fetchval(statements["doctor_disk"])
        except asyncpg.DiskFullError as error:
            fix = "free space on the disk of the server; until then no job can be enqueued and no outcome recorded"
            return [bad("disk", f"it is full: {error}", fix)]
        except asyncpg.ConfigurationLimitExceededError as error:
            return [ok("disk", f"not examined: {error}")]
        return [ok("disk", f"there is space for another {written // 1_000_000} MB")]

    async def connections(self) -> list[Finding]:
        """Check how many connections are left, and whether the pools of live nodes could need more."""
        [row] = await self._fetch("connections", SILENT)
        used, most = row["used"], row["most"]
        fact = f"{used} of {most} in use"
        if used >= FULL * most:
            judge = bad if used >= TOO_FULL * most else warn
            fix = "raise max_connections, or use a connection pooler"
            return [judge("connections", f"{fact}, most by {', '.join(row['groups'])}", fix)]
        possible = used - row["open"] + row["pools"]
        if possible > most and not self._database.pooled:
            fact += f", but the pools of live nodes ({row['nodes']}) can make it {possible}"
            fix = f"set max_connections to {possible + 20} or more, give nodes fewer slots, or use a connection pooler"
            return [warn("connections", fact, fix)]
        if possible > used and not self._database.pooled:
            fact += f"; the pools of live nodes ({row['nodes']}) can make it {possible}"
        return [ok("connections", fact)]

    async def _round_trip(self) -> float | None:
        channel, heard = f"howdah_doctor_{secrets.token_hex(6)}", asyncio.Event()
        listening = await self._database.connect("doctor")
        try:
            await listening.add_listener(channel, lambda *_: heard.set())
            began = asyncio.get_running_loop().time()
            await self._conn.execute("select pg_notify($1, '')", channel)
            return asyncio.get_running_loop().time() - began if await wait(heard, NOTIFY_TIMEOUT) else None
        finally:
            listening.terminate()

    def _pooler(self, *, heard: bool) -> Finding:
        if self._database.pooled:
            if heard:
                return ok("pooler", "connected through a session pooler; wake-ups arrive")
            return ok("pooler", "connected through a transaction pooler, as the settings say")
        if self._conn.get_server_pid() != self._pid:
            fact = "connected through a pooler that Howdah did not recognise"
            return warn(
                "pooler",
                fact,
                "connect directly, or remove howdah's settings from ignore_startup_parameters of the pooler",
            )
        return ok("pooler", "connected directly")


class StorageDoctor:
    """Examines Howdah's tables, and what keeps them from being vacuumed."""

    def __init__(self, database: Database, fetch: Fetch) -> None:
        self._schema = database.schema
        self._fetch = fetch

    async def horizon(self) -> list[Finding]:
        """Check for transactions and slots that keep dead rows from being removed."""
        rows = await self._fetch("horizon", LONG, FAR_BEHIND, MUCH_KEPT)
        if rows:
            return [_holder(row) for row in rows]
        [hidden] = await self._fetch("hidden")
        fact = "no transaction or replication slot prevents the removal of dead rows"
        if hidden["sessions"]:
            fact += (
                f"; {hidden['sessions']} sessions of other roles are not visible, to see them grant"
                f" pg_read_all_stats to {identifier(hidden['role'])}"
            )
        return [ok("horizon", fact)]

    async def vacuum(self) -> list[Finding]:
        """Check that autovacuum is on and keeps up."""
        rows = await self._fetch("dead", self._schema)
        if not all(row["switched_on"] for row in rows):
            return [bad("vacuum", "autovacuum is off", "alter system set autovacuum = on; select pg_reload_conf()")]
        findings = []
        off = [row for row in rows if row["disabled"]]
        if off:
            fix = f"alter table {off[0]['quoted']} reset (autovacuum_enabled)"
            findings.append(bad("vacuum", f"autovacuum is off for {some([row['name'] for row in off])}", fix))
        many = [row for row in rows if row["dead"] > max(MANY_DEAD, row["live"] // 5)]
        if many:
            said = ", ".join(f"{row['name']} {row['dead']:,} ({row['live']:,} live)" for row in many[:3])
            fix = "see horizon; if that is ok, alter system set autovacuum_vacuum_cost_limit = 2000"
            findings.append(warn("vacuum", f"many dead rows: {said}", fix))
        findings += [
            warn(
                "bloat",
                f"{row['name']} takes {row['bytes'] / 2**20:,.0f} MB for {row['live']:,} rows",
                f"while there is little load, since it locks the table: vacuum full {row['quoted']}",
            )
            for row in rows
            if row["brief"] and row["bytes"] > max(BLOATED, ROW * row["live"])
        ]
        return findings or [ok("vacuum", f"autovacuum is on, {sum(row['dead'] for row in rows):,} dead rows")]

    async def partitions(self) -> list[Finding]:
        """Check that partitions for new jobs exist."""
        [row] = await self._fetch("partitions", MANY_UNOWNED + 1)
        ahead = f"{row['ahead']} exist for future jobs"
        if row["ahead"] < 2:
            judge = warn if row["ahead"] else bad
            return [judge("partitions", ahead, "run a worker: its maintenance loop creates them")]
        if row["unowned"] > MANY_UNOWNED:
            fact = f"more than {MANY_UNOWNED:,} jobs in the default partition"
            return [warn("partitions", fact, "keep a worker running: it prunes them row by row")]
        return [ok("partitions", f"{ahead}; jobs in the default one: {row['unowned']:,}")]

    async def upkeep(self) -> list[Finding]:
        """Check that partitions can be created and dropped, and name the transaction that prevents it."""
        findings = []
        for row in await self._fetch("upkeep"):
            what = "created" if row["task"] == "grow" else "dropped"
            fact = (
                f"partitions could not be {what} for {span(row['blocked'])}: at the last try, {span(row['tried'])} ago,"
                f" {row['holder'] or 'another transaction'} held their tables"
            )
            judge = bad if row["blocked"] > STALLED else warn
            findings.append(judge("upkeep", fact, f"wait until it has ended, or end it; {RETRIED[row['task']]}"))
        return findings or [ok("upkeep", "no transaction kept partitions from being created or dropped")]


def _holder(row: Any) -> Finding:
    """Return the holder of the horizon, and how to end it."""
    what, who = row["what"], row["who"]
    if what == "replication slot":
        kept = f" and {row['kept'] / 2**30:,.1f} GB of WAL" if (row["kept"] or 0) > MUCH_KEPT else ""
        fact = f"replication slot {who} keeps dead rows{kept}: {row['doing']}"
        return warn("horizon", fact, f"wait for its reader, or select pg_drop_replication_slot({literal(who)})")
    fact = f"{what} {who} has kept dead rows for {span(row['age'])}: {statement(row['doing'])}"
    fix = end_transaction(row["pid"], who if what == "prepared transaction" else None)
    return Finding("horizon", Verdict.BAD if row["age"] > TOO_LONG else Verdict.WARN, fact, fix)
