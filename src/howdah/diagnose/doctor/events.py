"""Checks of the event log: its gate, its frontier, its consumers and their leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from howdah.diagnose.finding import Finding, bad, end_transaction, ok, some, span, statement, warn
from howdah.events.admin import ConsumerRow, Holder
from howdah.postgres import sql
from howdah.postgres.database import Database

DEAD = 30.0
"""Seconds after which a silent node counts as dead."""
HELD = 60.0
"""Seconds an append may be open."""
BEGINS = 15.0
"""Seconds a node may take before a leader is elected."""
MOST_HOLDERS = 5
RELEASE = 600.0
"""Seconds a rolling release may take, in which nodes declare consumers differently."""


class LogDoctor:
    """Examines the log. ``fetch`` runs one statement, within the doctor's timeout."""

    def __init__(self, database: Database, fetch: Callable[..., Awaitable[list[Any]]]) -> None:
        self._database = database
        self._fetch = fetch
        self._sql = sql.load("howdah.maintenance", schema=database.schema)
        self._log = sql.load("howdah.events", schema=database.schema)

    async def gate(self) -> list[Finding]:
        """Check the gate: without it, or with positions allocated ahead, consumers can miss events."""
        [row] = await self._fetch(self._sql["doctor_gate"])
        schema = sql.identifier(self._database.schema)
        findings = []
        if row["gate"] == "disabled":
            fact = "the trigger gate is disabled, so consumers can skip events"
            findings.append(bad("gate", fact, f"alter table {schema}.event enable always trigger gate"))
        elif row["gate"] == "partial":
            fact = "the trigger gate does not fire in sessions with session_replication_role = replica"
            findings.append(bad("gate", fact, f"alter table {schema}.event enable always trigger gate"))
        elif row["gate"] == "missing":
            fact = "the trigger gate is missing, so consumers can skip events"
            fix = (
                f"create trigger gate before insert on {schema}.event for each statement"
                f" execute function {schema}.gate(); alter table {schema}.event enable always trigger gate"
            )
            findings.append(bad("gate", fact, fix))
        if row["cache"] != 1:
            fact = f"sessions reserve {row['cache']} positions at a time, so consumers can skip events"
            findings.append(bad("gate", fact, f"alter sequence {schema}.event_position_seq cache 1"))
        return findings or [ok("gate", "every append passes it, and positions are allocated one by one")]

    async def frontier(self) -> list[Finding]:
        """Check for open appends: each keeps every consumer from later events."""
        head, safe, _ = (await self._fetch(self._log["frontier"], 0))[0]
        rows = [Holder(**row) for row in await self._fetch(self._log["holders"], MOST_HOLDERS)]
        long = [each for each in rows if each.age > HELD]
        if not long:
            return [ok("frontier", f"the log can be read up to {safe:,} of {head:,}")]
        findings = []
        for each in long:
            fact = f"the log can be read up to {each.above:,} of {head:,}: an append of {_who(each)} is open"
            fix = end_transaction(each.pid, each.prepared)
            findings.append(bad("frontier", f"{fact} for {span(each.age)}", fix))
        return findings

    async def consumers(self) -> list[Finding]:
        """Check for consumers that are halted, without a node, declared differently by nodes, or with parked events."""
        [(head, _, _)] = await self._fetch(self._log["frontier"], 0)
        rows = [ConsumerRow(**row) for row in await self._fetch(self._log["consumers"], head, DEAD)]
        findings = [_halted(row) for row in rows if row.state == "halted"]
        for row in await self._fetch(self._sql["doctor_declarations"], DEAD, RELEASE):
            fact = f"{row['consumer']} has other `types` or `only` on {some(row['nodes'])}, which do not run it"
            fix = "deploy the same code on every node, or give one of the two consumers another name"
            findings.append(warn("consumers", fact, fix))
        for row in await self._fetch(self._sql["doctor_consumer_partitions"], DEAD, RELEASE):
            fact = f"{row['consumer']} is declared with different numbers of partitions ({some(row['declared'])})"
            fix = "deploy the same code on every node, or give one of the two consumers another name"
            findings.append(warn("consumers", f"{fact}, and keeps {row['partitions']}", fix))
        findings += _unassigned([row for row in rows if row.state == "unassigned"])
        parked: dict[str, int] = {}
        for row in rows:
            parked[row.consumer] = parked.get(row.consumer, 0) + row.parked
        for name, events in parked.items():
            if events:
                fix = f"`howdah consumers parked list {name}` shows them; then retry or drop them"
                findings.append(warn("consumers", f"{name} has {events:,} parked events", fix))
        if findings:
            return findings
        behind = max((row.lag_seconds or 0.0 for row in rows), default=0.0)
        late = f", up to {span(behind)} behind" if behind >= 1 else ""
        return [ok("consumers", f"{len(parked)}, none is halted{late}" if rows else "there are no consumers")]

    async def leader(self) -> list[Finding]:
        """Check that a leader assigns the consumers."""
        waiting = [row["consumer"] for row in await self._fetch(self._sql["doctor_leaderless"], DEAD, BEGINS)]
        if waiting:
            fix = "search the log of a worker that has them for `leader failed`, and restart it"
            return [bad("leader", f"there is no leader, so no node runs these consumers: {some(waiting)}", fix)]
        [row] = await self._fetch(self._log["leader"])
        return [
            ok(
                "leader",
                f"node {row['leader']} ({row['leader_name']})" if row["leader"] else "none is needed",
            )
        ]


def _halted(row: ConsumerRow) -> Finding:
    # without the message, which the application's redact hook has not seen
    return bad(
        "consumers",
        f"{row.name} is halted at position {row.error_position} by {row.error}; it is {row.lag:,} events behind",
        f"fix the cause (`howdah why --consumer {row.consumer}`) and `howdah consumers resume {row.consumer}`, or"
        f" `howdah consumers skip {row.consumer}`",
    )


def _unassigned(rows: list[ConsumerRow]) -> list[Finding]:
    behind = {row.consumer: row.lag for row in sorted(rows, key=lambda row: row.lag)}
    fix = "start a worker with it, or delete it: howdah consumers forget {}"
    return [
        warn("consumers", f"no live node has {name}; it is {lag:,} events behind", fix.format(name))
        for name, lag in sorted(behind.items())
    ]


def _who(holder: Holder) -> str:
    if holder.prepared is not None:
        return f"prepared transaction {holder.prepared}"
    doing = f"; {holder.state}: {statement(holder.query)}" if holder.state and holder.query else ""
    return f"pid {holder.pid} ({holder.application or holder.role or '?'}{doing})"
