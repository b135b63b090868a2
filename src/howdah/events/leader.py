"""Leader election, and the leader's task: assigning partitions to nodes.

Exclusive consumption does not depend on the leader: partitions are fenced by their epoch. The leader's decisions are
fenced by its term: a leader that was frozen changes nothing after another one has begun to lead.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal, Protocol

import asyncpg
import msgspec

from howdah import telemetry
from howdah.errors import ConfigError
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.postgres.sql import columns

log = logging.getLogger("howdah")

LeadershipKind = Literal["lease", "advisory"]


class Leadership(Protocol):
    """A way to become the leader and stay it."""

    async def lead(self) -> datetime | None:
        """Return the term of this node, the time it began to lead; ``None`` while another node leads."""

    async def close(self) -> None: ...


class LeaseLeadership:
    """Leadership by a lease, a row renewed at every tick; works behind every pooler."""

    def __init__(
        self, session: Session, statements: Mapping[str, str], node: int, *, lease: float, dead: float
    ) -> None:
        self._session = session
        self._sql = statements
        self._node = node
        self._lease = lease
        self._dead = dead

    async def lead(self) -> datetime | None:
        term: datetime | None = await self._session.fetchval(self._sql["lead"], self._node, self._lease, self._dead)
        return term

    async def close(self) -> None:
        pass  # The node releases its partitions and the leadership in one statement.


class AdvisoryLeadership:
    """Leadership by a session's advisory lock, with a key per schema; does not work through a transaction pooler."""

    def __init__(self, database: Database, statements: Mapping[str, str], node: int, *, lease: float) -> None:
        if database.pooled:
            raise ConfigError("leader='advisory' needs a direct connection, and a pooler is in between; use 'lease'")
        self._session = Session(database, "leader", on_connect=self._forget)
        self._sql = statements
        self._key = f"{database.schema} leader"
        self._node = node
        self._lease = lease
        self._mine = False

    async def lead(self) -> datetime | None:
        if not self._mine:
            idle = str(int(self._lease * 1000))
            self._mine = bool(await self._session.fetchval(self._sql["try_lock"], self._key, idle))
        if not self._mine:
            return None
        term: datetime | None = await self._session.fetchval(
            self._sql["record_leader"], self._node, self._lease, self._key
        )
        return term if self._mine else None  # The session may just have broken.

    async def close(self) -> None:
        await self._session.close()

    def _forget(self) -> None:
        self._mine = False  # The lock is gone with the session.


class Leader:
    """Tries to lead, and as the leader assigns the partitions."""

    def __init__(self, database: Database, session: Session, leadership: Leadership, node: int, *, dead: float) -> None:
        self._session = session
        self._leadership = leadership
        self._node = node
        self._dead = dead
        self._sql = sql.load("howdah.events", schema=database.schema)
        self._unassigned: list[str] = []
        self._barred: set[tuple[str, int]] = set()
        """Consumers and nodes already warned about."""
        self._uneven: set[str] = set()
        """Consumers already warned about because nodes disagree on their number of partitions."""
        self.leads = False

    async def tick(self) -> None:
        """Try to lead; as the leader, rebalance."""
        try:
            term = await self._leadership.lead()
        except BaseException:
            self._set(False)
            raise
        self._set(term is not None)
        if term is not None:
            await self.rebalance(term)

    async def close(self) -> None:
        """Give up the leadership."""
        self._set(False)
        await self._leadership.close()

    async def rebalance(self, term: datetime) -> None:
        """Apply the declared numbers of partitions and assign each to a live, able node; no effect in another term."""
        await self._replace_declarations()
        nodes = await self._session.fetch(self._sql["candidates"], self._dead)
        drains = {
            row["id"] for row in nodes if row["drains"]
        }  # A draining node finishes its batches, then releases its partitions.
        wants: dict[int, dict[str, int]] = {
            row["id"]: msgspec.json.decode(row["consumers"], type=dict[str, int])
            for row in nodes
            if row["id"] not in drains
        }
        able = {row["id"]: wants[row["id"]].keys() - set(row["excluded"]) for row in nodes if row["id"] in wants}
        rows = await self._session.fetch(self._sql["owners"])
        if await self._reshape(rows, wants, term):
            rows = await self._session.fetch(self._sql["owners"])
        owners = {(row["consumer"], row["part"]): row["node"] for row in rows if row["node"] not in drains}
        plan = assign(owners, able)
        moves = [(*part, node) for part, node in plan.items() if owners[part] != node]
        if moves:
            await self._session.fetch(self._sql["assign"], *columns(moves, 3), self._node, term)
        unassigned = sorted({name for (name, _), node in plan.items() if node is None})
        if moves or unassigned != self._unassigned:
            self._unassigned = unassigned
            telemetry.emit("consumer.assign", moves=len(moves), unassigned=unassigned)

    async def _replace_declarations(self) -> None:
        """Decide which declaration of a consumer is current, and warn of nodes that declared another one."""
        try:
            rows = await self._session.fetch(self._sql["replace_declarations"], self._dead)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            return  # A node is declaring right now: retry at the next tick.
        found = {(row["consumer"], row["node"]) for row in rows}
        for consumer, node in sorted(found - self._barred):
            log.warning(
                "node %s declares consumer %s with other types or only than the newest declaration, and does not"
                " consume it; deploy the same code on every node, or give one of the two another name",
                node,
                consumer,
            )
        self._barred = found

    async def _reshape(self, rows: list[Any], wants: Mapping[int, Mapping[str, int]], term: datetime) -> bool:
        """Change the partitions of a consumer once all nodes that have it agree on their number."""
        changed, uneven = False, set[str]()
        for name, has, moving in {(row["consumer"], row["partitions"], row["upto"] is not None) for row in rows}:
            wanted = {each[name] for each in wants.values() if name in each}
            target = has if len(wanted) > 1 else next(iter(wanted), has)  # Nodes disagree: keep the old number.
            if len(wanted) > 1:
                uneven.add(name)
                if name not in self._uneven:
                    log.warning(
                        "nodes declare consumer %s with different numbers of partitions (%s); it keeps %d until all"
                        " agree",
                        *(name, ", ".join(map(str, sorted(wanted))), has),
                    )
            if target != has or (moving and wanted):
                try:
                    given = (name, target, self._node, term)
                    changed |= bool(await self._session.fetchval(self._sql["reshape"], *given))
                except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                    pass  # A batch is being committed right now: retry at the next tick.
        self._uneven = uneven
        return changed

    def _set(self, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            telemetry.emit("leader.gain" if leads else "leader.lose")


Part = tuple[str, int]
"""A consumer's name and the number of one of its partitions."""


def assign(owners: Mapping[Part, int | None], able: Mapping[int, AbstractSet[str]]) -> dict[Part, int | None]:
    """Assign each partition to a node: ``owners`` is the current assignment, ``able`` the consumers of each live node.

    >>> names = {(name, 0): None for name in ("Analytics", "Billing", "Email", "Inventory", "Orders", "Shipping")}
    >>> everything = {name for name, _ in names}
    >>> three = assign(names, {1: everything, 2: everything, 3: everything})
    >>> [[name for (name, _), node in three.items() if node == each] for each in (1, 2, 3)]
    [['Analytics', 'Inventory'], ['Billing', 'Orders'], ['Email', 'Shipping']]
    """
    plan = _Plan(able)
    waiting = []
    for part in sorted(owners):
        node = owners[part]
        if node is not None and part[0] in able.get(node, ()):
            plan.give(part, node)
        else:
            waiting.append(part)
    for part in waiting:
        plan.give(part, plan.lightest(part))
    homes = _round_robin(sorted(owners), able)
    while path := plan.path():
        plan.shift(path, homes)
    return {part: plan.owner.get(part) for part in sorted(owners)}


class _Plan:
    def __init__(self, able: Mapping[int, AbstractSet[str]]) -> None:
        self._able = able
        self._held: dict[int, list[Part]] = {node: [] for node in sorted(able)}
        self.owner: dict[Part, int] = {}

    def give(self, part: Part, node: int | None) -> None:
        if node is not None:
            self._held[node].append(part)
            self.owner[part] = node

    def lightest(self, part: Part) -> int | None:
        """Return the node with the fewest partitions among those that can consume it, the first of equals."""
        fit = [node for node in self._held if part[0] in self._able[node]]
        return min(fit, key=lambda node: len(self._held[node]), default=None)

    def path(self) -> Sequence[int]:
        """Return the shortest path of moves from an overloaded node to one with at least two fewer, or nothing."""
        others = sorted(
            self._held, key=lambda node: len(self._held[node])
        )  # Least loaded first, otherwise more partitions would move.
        for start in sorted(self._held, key=lambda node: -len(self._held[node])):
            came: dict[int, int | None] = {start: None}
            queue = deque([start])
            while queue:
                node = queue.popleft()
                if len(self._held[node]) + 2 <= len(self._held[start]):
                    return _trace(came, node)
                for other in others:
                    if other not in came and any(part[0] in self._able[other] for part in self._held[node]):
                        came[other] = node
                        queue.append(other)
        return ()

    def shift(self, path: Sequence[int], homes: Mapping[Part, int | None]) -> None:
        """Move one partition along each step; one that round robin would put there if there is any, else the last."""
        for source, target in pairwise(path):
            fit = [part for part in self._held[source] if part[0] in self._able[target]]
            moved = max(fit, key=lambda part: (homes[part] == target, part))
            self._held[source].remove(moved)
            self.give(moved, target)


def _round_robin(parts: Sequence[Part], able: Mapping[int, AbstractSet[str]]) -> dict[Part, int | None]:
    plan = _Plan(able)
    return {part: _given(plan, part) for part in parts}


def _given(plan: _Plan, part: Part) -> int | None:
    node = plan.lightest(part)
    plan.give(part, node)
    return node


def _trace(came: Mapping[int, int | None], node: int | None) -> list[int]:
    path: list[int] = []
    while node is not None:
        path.append(node)
        node = came[node]
    return path[::-1]
