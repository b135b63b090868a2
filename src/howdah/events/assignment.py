"""Assignment of partitions to nodes: a pure function, deterministic, with as few moves as possible.

The first assignment is a sorted round robin. After that a partition stays on its node while that node lives and can
consume it, and moves only as far as needed to keep the nodes balanced within one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

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
