"""The conditions that a consumer must meet to handle its next event, over all of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from howdah.diagnose.finding import LONGEST, Gate, count, end_transaction, line, moment, some, span, statement, until
from howdah.events.admin import DEAD, Holder, unknown
from howdah.postgres import sql

SHOWN = 3
"""Largest number of partitions named in one fact."""
MOST_NODES = 1000


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a consumer, or all of it."""

    part: int
    partitions: int
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    upto: int | None
    now: datetime
    node: int | None
    node_name: str | None
    node_state: str | None
    silent: float | None
    position: int
    behind: int
    halted: bool
    failures: int
    error_position: int | None
    error_at: datetime | None
    error: str
    rate: float
    parked: int

    @property
    def orphaned(self) -> bool:
        """True if its owner sends no heartbeats."""
        return self.node_state in (None, "offline") or self.silent is None or self.silent > DEAD

    @property
    def waits(self) -> bool:
        """True if it waits for the consumer's other partitions."""
        return self.upto is not None and self.position >= self.upto


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the log."""

    head: int
    safe: int
    leader: str | None
    nodes: Sequence[str]
    """The live nodes that have the consumer; those that drain take nothing new."""
    draining: int
    holder: Holder | None
    since: datetime | None
    query_since: datetime | None


async def gates(conn: Any, schema: str, name: str) -> list[Gate]:
    """Return all gates in order; raise when there is no such consumer."""
    own, of_log = sql.load("howdah.diagnose.why", schema=schema), sql.load("howdah.events", schema=schema)
    head, safe, _ = await conn.fetchrow(of_log["frontier"], 0)
    parts = [PartitionFacts(**row) for row in await conn.fetch(own["consumer"], name, safe, LONGEST * 2)]
    if not parts:
        raise unknown(name)
    having = await conn.fetch(own["having"], name, DEAD, MOST_NODES)
    leading = await conn.fetchrow(of_log["leader"])
    holders = [Holder(**row) for row in await conn.fetch(of_log["holders"], 1)] if safe < head else []
    activity = await conn.fetchrow(own["activity"], holders[0].pid) if holders else None
    log = LogFacts(
        head=head,
        safe=safe,
        leader=f"node {leading['leader']} ({leading['leader_name']})" if leading["leader"] else None,
        nodes=[f"node {row['id']} ({row['name']})" for row in having],
        draining=sum(row["draining"] for row in having),
        holder=holders[0] if holders else None,
        since=activity["xact_start"] if activity else None,
        query_since=activity["query_start"] if activity else None,
    )
    return list(_gates(name, parts, log))


def _gates(name: str, parts: Sequence[PartitionFacts], log: LogFacts) -> Iterator[Gate]:
    yield _pause(name, parts[0])
    yield _node(name, log)
    yield _assigned(parts, log)
    yield _halt(name, parts)
    yield _retry(name, parts)
    if parts[0].upto is not None:
        yield _reshape(parts)
    yield _frontier(parts, log)
    yield _behind(parts)
    if parked := sum(part.parked for part in parts):
        fix = f"`howdah consumers parked list {name}` shows them; then retry or drop them"
        yield Gate("parked", True, f"it has parked {count(parked, 'event')} after failures, and continued", fix)


def _pause(name: str, part: PartitionFacts) -> Gate:
    if not part.paused:
        return Gate("pause", True, "it is not paused")
    by = f" by {line(part.paused_by)}" if part.paused_by else ""
    since = f" since {until(part.paused_at, part.now)}" if part.paused_at else ""
    return Gate("pause", False, f"it is paused{by}{since}", f"howdah consumers resume {name}")


def _node(name: str, log: LogFacts) -> Gate:
    if not log.nodes:
        fix = f"start a worker with it: howdah worker -a module:app; or delete it: howdah consumers forget {name}"
        return Gate("node", False, "no live node has this consumer", fix)
    if log.draining == len(log.nodes):
        return Gate(
            "node",
            False,
            f"all nodes with this consumer are draining: {some(log.nodes, SHOWN)}",
            "start another worker",
        )
    return Gate("node", True, f"{some(log.nodes, SHOWN)} has this consumer")


def _assigned(parts: Sequence[PartitionFacts], log: LogFacts) -> Gate:
    leader = f"{log.leader} is the leader" if log.leader else "there is no leader"
    fix = None if log.leader else "start a worker with consumers; if it cannot lead, its log says `leader failed`"
    if free := [part for part in parts if part.node is None]:
        return Gate("assigned", False, f"{_each(free, lambda _: 'assigned to no node')}; {leader}", fix)
    if orphaned := [part for part in parts if part.orphaned]:
        return Gate("assigned", False, f"{_each(orphaned, _silence)}; {leader}", fix)
    return Gate("assigned", True, _each(parts, lambda part: f"assigned to node {part.node} ({part.node_name})"))


def _silence(part: PartitionFacts) -> str:
    if part.silent is None:
        return f"assigned to node {part.node}, which no longer exists"
    return f"assigned to node {part.node} ({part.node_name}), which has sent no heartbeat for {span(part.silent)}"


def _halt(name: str, parts: Sequence[PartitionFacts]) -> Gate:
    if halted := [part for part in parts if part.halted]:
        fact = _each(halted, lambda part: f"halted at position {part.error_position:,} by {_error(part)}")
        return Gate(
            "halt",
            False,
            fact,
            f"fix the cause and `howdah consumers resume {name}`, or `howdah consumers skip {name}`",
        )
    return Gate("halt", True, "it is not halted")


def _retry(name: str, parts: Sequence[PartitionFacts]) -> Gate:
    if failing := [part for part in parts if part.failures and not part.halted]:
        fact = _each(failing, lambda part: f"waits to retry position {part.error_position:,} after {_error(part)}")
        return Gate("retry", False, fact, f"fix the cause, or `howdah consumers skip {name}`")
    return Gate("retry", True, "its last batch did not fail")


def _error(part: PartitionFacts) -> str:
    at = f", {until(part.error_at, part.now)}" if part.error_at else ""
    return f"{line(part.error)} ({count(part.failures, 'failure')} in a row{at})"


def _reshape(parts: Sequence[PartitionFacts]) -> Gate:
    waiting = [part for part in parts if part.waits]
    fact = (
        f"the number of its partitions is changing: each stops at position {parts[0].upto:,},"
        f" and {len(waiting)} of {len(parts)} have reached it"
    )
    return Gate("reshape", not waiting, fact)


def _frontier(parts: Sequence[PartitionFacts], log: LogFacts) -> Gate:
    if log.holder is None:
        return Gate("frontier", True, f"the log can be read up to {log.safe:,} of {log.head:,}")
    fact = f"the log can be read up to {log.safe:,} of {log.head:,}: {_who(log.holder)}"
    if log.since:
        fact += f" has had its transaction open since {until(log.since, parts[0].now)}"
    if log.query_since:
        fact += f", its last statement began at {moment(log.query_since)}"
    if any(part.position < log.safe for part in parts):
        return Gate("frontier", True, fact)
    return Gate("frontier", False, fact, end_transaction(log.holder.pid, log.holder.prepared))


def _who(holder: Holder) -> str:
    if holder.prepared is not None:
        return f"prepared transaction {holder.prepared} has been open for {span(holder.age)}"
    doing = f"; {holder.state}: {statement(holder.query)}" if holder.state and holder.query else ""
    return f"pid {holder.pid} ({holder.application or holder.role or '?'}{doing})"


def _behind(parts: Sequence[PartitionFacts]) -> Gate:
    behind, rate = max(part.behind for part in parts), sum(part.rate for part in parts)
    if not behind:
        return Gate("behind", True, "it has handled every event that can be read")
    return Gate(
        "behind", True, f"it is up to {count(behind, 'event')} behind, and recently handled {rate:,.0f} events a second"
    )


def _each(parts: Sequence[PartitionFacts], say: Callable[[PartitionFacts], str]) -> str:
    """Describe each partition; with its number only when there are several."""
    if parts[0].partitions == 1:
        return say(parts[0])
    more = f"; and {len(parts) - SHOWN} more partitions" if len(parts) > SHOWN else ""
    return "; ".join(f"partition {part.part}: {say(part)}" for part in parts[:SHOWN]) + more
