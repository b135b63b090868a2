"""Declarations of one table by the apps that work on it, and conflicts between them."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from howdah import telemetry
from howdah.node.registry import node_name
from howdah.postgres.database import Session
from howdah.table.plan import TablePlan
from howdah.table.statement import Where

log = logging.getLogger("howdah")

REFRESH = 10.0
"""Seconds between two reads of other nodes' declarations."""
MOST_DECLARED = 1000
LONGEST_CONDITION = 500


class TableDeclaration(NamedTuple):
    """One node's declaration of a table."""

    node: str
    name: str
    stalled_after: float
    condition: str | None
    live: bool


def condition_of(where: Where | None) -> str | None:
    """Return a table's own condition in a comparable form; values are hidden."""
    if where is None:
        return None
    digest = hashlib.sha256(repr(where.values).encode()).hexdigest()[:12] if where.values else ""
    return f"{where.text.strip()[:LONGEST_CONDITION]} {digest}".strip()


def conflicts(declared: Sequence[TableDeclaration]) -> list[tuple[TableDeclaration, TableDeclaration]]:
    """Pairs of live declarations that may claim the same rows and differ in ``stalled_after``.

    Conditions that differ are taken to exclude each other; no condition overlaps with every other.
    """
    kinds = list({(each.stalled_after, each.condition): each for each in declared if each.live}.values())
    return [
        (one, other)
        for at, one in enumerate(kinds)
        for other in kinds[at + 1 :]
        if one.stalled_after != other.stalled_after
        and (one.condition == other.condition or None in (one.condition, other.condition))
    ]


class Declarations:
    """Declares the stall time of this node's rows, and caches those of other nodes."""

    def __init__(self, plan: TablePlan, session: Session) -> None:
        self._plan = plan
        self._session = session
        self._known: tuple[float, list[str], list[float]] = (plan.options.stalled_after, [], [])
        self._next = 0.0
        self._warned: set[tuple[Any, ...]] = set()

    async def stalls(self) -> tuple[float, list[str], list[float]]:
        """The stall time of rows of unknown workers, then the names of workers and the stall time of each.

        No names while all nodes declare the same.
        """
        if time.monotonic() >= self._next:
            await self.declare()
            await self._read()
            self._next = time.monotonic() + REFRESH
        return self._known

    async def changed(self) -> bool:
        """Read again what every node declares; return whether it changed since the last :meth:`stalls`."""
        before = self._known
        await self._read()
        return self._known != before

    async def declare(self) -> None:
        """Declare the stall time of this node's rows, so that other nodes know it before the first row is claimed."""
        options = self._plan.options
        mine = (node_name(), options.name, float(options.stalled_after), condition_of(options.where))
        await self._session.fetch(self._plan.sql["declare"], self._plan.table.quoted, *mine)

    async def _read(self) -> None:
        options = self._plan.options
        rows = await self._session.fetch(self._plan.sql["declared"], self._plan.table.quoted, MOST_DECLARED)
        declared = [TableDeclaration(**row) for row in rows]
        self._warn(declared)
        if all(each.stalled_after == options.stalled_after for each in declared):
            self._known = (options.stalled_after, [], [])
            return
        longest = max([options.stalled_after, *(each.stalled_after for each in declared if each.live)])
        stalls: dict[str, float] = {}
        for each in declared:
            stalls[each.node] = max(each.stalled_after, stalls.get(each.node, 0.0))
        self._known = (longest, list(stalls), list(stalls.values()))

    def _warn(self, declared: Sequence[TableDeclaration]) -> None:
        for one, other in conflicts(declared):
            key = tuple(sorted([(one.name, one.stalled_after), (other.name, other.stalled_after)]))
            if key not in self._warned:
                self._warned.add(key)
                log.warning("%s", conflict(str(self._plan.table), one, other))
                stalls = sorted([one.stalled_after, other.stalled_after])
                telemetry.emit("table.conflict", table=self._plan.options.name, stalled_after=stalls)


def conflict(table: str, one: TableDeclaration, other: TableDeclaration) -> str:
    """Describe a conflict."""
    return (
        f"table {table} is declared with stalled_after={one.stalled_after:g} by {one.node} ({one.name}) and"
        f" stalled_after={other.stalled_after:g} by {other.node} ({other.name}), for the same rows"
    )
