"""Checks of storage: sessions that keep dead rows, vacuum, and partitions for new jobs."""

from __future__ import annotations

from typing import Any

from howdah.diagnose.doctor.finding import LONG, TOO_LONG, Fetch, Finding, Verdict, bad, ok, some, span, statement, warn
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier, literal

FAR_BEHIND = 100_000
"""Transactions a replication slot may be behind."""
MUCH_KEPT = 10 * 2**30
"""Bytes of WAL a replication slot may keep."""
MANY_DEAD = 100_000
MANY_UNOWNED = 1_000_000
BLOATED = 256 * 2**20
"""Size in bytes below which a table with short-lived rows is never reported."""
ROW = 4000
"""Bytes per row such a table may have: twenty times what the rows need."""


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
        said = "no transaction or slot keeps dead rows"
        if hidden["sessions"]:
            said += (
                f", as far as can be seen: {hidden['sessions']} sessions of other roles are hidden,"
                f" grant pg_read_all_stats to {identifier(hidden['role'])}"
            )
        return [ok("horizon", said)]

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
            fix = "see horizon; when nothing holds them, alter system set autovacuum_vacuum_cost_limit = 2000"
            findings.append(warn("vacuum", f"many dead rows: {said}", fix))
        findings += [
            warn(
                "bloat",
                f"{row['name']} takes {row['bytes'] / 2**20:,.0f} MB for {row['live']:,} rows",
                f"in a quiet minute, vacuum full {row['quoted']}",
            )
            for row in rows
            if row["brief"] and row["bytes"] > max(BLOATED, ROW * row["live"])
        ]
        return findings or [ok("vacuum", f"autovacuum is on, {sum(row['dead'] for row in rows):,} dead rows")]

    async def partitions(self) -> list[Finding]:
        """Check that partitions for new jobs exist."""
        [row] = await self._fetch("partitions", MANY_UNOWNED + 1)
        if row["ahead"] < 2:
            judge = warn if row["ahead"] else bad
            return [judge("partitions", f"{row['ahead']} ahead", "run a worker: its upkeep makes them")]
        if row["unowned"] > MANY_UNOWNED:
            fact = f"more than {MANY_UNOWNED:,} jobs in the default partition"
            return [warn("partitions", fact, "they are pruned row by row; keep a worker running")]
        return [ok("partitions", f"{row['ahead']} ahead, {row['unowned']:,} jobs in the default partition")]


def _holder(row: Any) -> Finding:
    """Return the holder of the horizon, and how to end it."""
    what, who = row["what"], row["who"]
    if what == "replication slot":
        kept = f" and {row['kept'] / 2**30:,.1f} GB of the server's log" if (row["kept"] or 0) > MUCH_KEPT else ""
        fact = f"replication slot {who} keeps dead rows{kept}: {row['doing']}"
        return warn("horizon", fact, f"let its reader catch up, or select pg_drop_replication_slot({literal(who)})")
    fact = f"{what} {who} keeps dead rows for {span(row['age'])}: {statement(row['doing'])}"
    fix = f"end it, or select pg_terminate_backend({row['pid']})"
    if what == "prepared transaction":
        fix = f"commit prepared {literal(who)}, or rollback prepared {literal(who)}"
    return Finding("horizon", Verdict.BAD if row["age"] > TOO_LONG else Verdict.WARN, fact, fix)
