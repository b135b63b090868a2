"""The gates of a row of a table of yours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from howdah.diagnose.finding import Gate, line, some, span, until
from howdah.diagnose.why.facts import NodeFacts
from howdah.errors import ConfigError, HowdahError
from howdah.table.admin import looking
from howdah.table.contract import NUMBERS
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan

WAITING = ("queued", "errored")
SHOWN = 5


class RowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One row, at one moment."""

    state: str | None
    now: datetime
    cancel: bool
    process_after: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    message: str | None
    failures: int
    resets: int
    silent: float | None
    due: bool
    wanted: bool
    costs: Sequence[float]


async def gates(conn: Any, schema: str, options: TableOptions, id: Any, nodes: Sequence[NodeFacts]) -> list[Gate]:
    """All of them, in the order a claim comes to them; raises when there is no such row."""
    plan = await TablePlan.make(conn, options, schema)
    statement, values = looking(plan)
    try:
        found = await conn.fetchrow(statement, _key(plan, id), *values)
    except asyncpg.DataError:  # a number too big for the column is no row's
        found = None
    if found is None:
        raise HowdahError(f"table {plan.table} has no row {id}; it was never inserted, or it was deleted")
    row = RowFacts(**found)
    if row.state in WAITING:
        return list(_waiting(row, options, id, nodes))
    return [_processing(row, options) if row.state == "processing" else _over(row, options, id)]


def _key(plan: TablePlan, id: Any) -> Any:
    kind = plan.table.attributes[plan.options.columns.id].type
    try:
        return int(id) if kind in NUMBERS else uuid.UUID(str(id)) if kind == "uuid" else str(id)
    except ValueError:
        words = "uuids" if kind == "uuid" else "numbers"
        raise ConfigError(f"{id!r} is not an id of table {plan.table}; its ids are {words}") from None


def _over(row: RowFacts, options: TableOptions, id: Any) -> Gate:
    since = f" since {until(row.finished_at, row.now)}" if row.finished_at else ""
    why = f": {line(row.message)}" if row.message else ""
    fix = f"howdah table requeue {options.name} {id}"
    return Gate("over", False, f"it is {row.state}{since}{why}", None if row.state == "completed" else fix)


def _processing(row: RowFacts, options: TableOptions) -> Gate:
    since = f" since {until(row.started_at, row.now)}" if row.started_at else ""
    fact = f"{row.worker or 'a worker'} processes it{since}"
    if row.silent is None or row.silent > options.stalled_after:
        silent = "ever" if row.silent is None else f"for {span(row.silent)}"
        fact += f", but has sent no heartbeat {silent}, longer than stalled_after ({span(options.stalled_after)})"
        return Gate("lease", False, fact, "start a worker with this table: its maintenance loop resets the row")
    return Gate("lease", False, f"{fact}, and sent a heartbeat {span(row.silent)} ago")


def _waiting(row: RowFacts, options: TableOptions, id: Any, nodes: Sequence[NodeFacts]) -> Iterator[Gate]:
    yield _node(options, nodes)
    yield _due(row, options)
    if row.cancel:
        yield Gate("cancel", False, "its cancel flag is set", f"howdah table requeue {options.name} {id}")
    else:
        yield Gate("cancel", True, "its cancel flag is not set")
    if options.where is not None:
        text = line(options.where.text)
        fact = f"it {'meets' if row.wanted else 'does not meet'} the condition of the table: {text}"
        yield Gate("where", row.wanted, fact, None if row.wanted else "change the row, or `where` of the table")
    if options.budget is not None:
        yield _budget(row, options)


def _node(options: TableOptions, nodes: Sequence[NodeFacts]) -> Gate:
    live = [node for node in nodes if node.live]
    having = [node for node in live if options.name in (*(node.kinds or ()), *node.tables)]
    able = [node for node in having if not node.draining]
    if able:
        return Gate("node", True, f"{some(able, SHOWN)} processes table {options.name}")
    fix = "start a worker with an app that has it: howdah worker -a module:app"
    if having:
        return Gate(
            "node", False, f"all nodes that process table {options.name} are draining: {some(having, SHOWN)}", fix
        )
    return Gate("node", False, f"none of {len(live)} live nodes processes table {options.name}", fix)


def _due(row: RowFacts, options: TableOptions) -> Gate:
    tried = f"; {row.failures} of {options.max_attempts} attempts failed: {line(row.message)}" if row.failures else ""
    if row.due or row.process_after is None:
        since = row.process_after or row.queued_at
        return Gate("due", True, f"it is due{' since ' + until(since, row.now) if since else ''}{tried}")
    name = "retry" if row.state == "errored" else "due"
    return Gate(name, False, f"it is not due until {until(row.process_after, row.now)}{tried}")


def _budget(row: RowFacts, options: TableOptions) -> Gate:
    assert options.budget is not None
    wants = [(name, cost, whole) for (name, whole), cost in zip(options.budget.total.items(), row.costs, strict=True)]
    fact = ", ".join(f"{cost:g} of {whole:g} {name}" for name, cost, whole in wants)
    if any(cost > whole for _, cost, whole in wants):
        return Gate(
            "budget",
            False,
            f"it needs {fact}, more than the whole budget",
            "raise the budget, or reduce the cost of the row",
        )
    return Gate("budget", True, f"it needs {fact}; only its worker knows how much is free")
