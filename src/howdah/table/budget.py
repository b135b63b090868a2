"""Resource budget shared by the rows that run at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from howdah.errors import ConfigError
from howdah.postgres.sql import identifier

Key = tuple[int, int | str]


class Budget:
    """A total for each resource: ``Budget(memory=8_000, cost={"memory": "size_mb"})``.

    ``cost`` names the column of the table with the amount of a resource that a row needs. A row that needs more than
    is left is skipped and does not delay smaller ones; one that needs more than the total is reported. Tables that
    are given the same budget share it.
    """

    def __init__(self, *, cost: Mapping[str, str], **total: float) -> None:
        if not total:
            raise ConfigError("a budget needs a resource; write Budget(memory=8_000, cost={'memory': 'size_mb'})")
        if set(cost) != set(total):
            odd = min(set(cost) ^ set(total))
            raise ConfigError(f"resource {odd!r} needs both a total and a column; write Budget({odd}=…, cost={{…}})")
        for name, amount in total.items():
            if not amount > 0:
                raise ConfigError(f"{name} of a budget must be above zero, got {amount!r}")
        self.total = {name: float(amount) for name, amount in total.items()}
        self.cost = {name: cost[name] for name in total}
        self._reserved: dict[Key, list[float]] = {}
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.watchers: list[Callable[[], None]] = []
        """Called when resources are freed; several tables may share a budget."""

    def __repr__(self) -> str:
        totals = ", ".join(f"{name}={amount:g}" for name, amount in self.total.items())
        return f"Budget({totals}, cost={self.cost!r})"

    @property
    def left(self) -> dict[str, float]:
        """Return the free amount of each resource."""
        reserved = self._reserved.values()
        return {name: total - sum(each[at] for each in reserved) for at, (name, total) in enumerate(self.total.items())}

    @property
    def turn(self) -> asyncio.Lock:
        """Lock held from reading the free amounts until they are reserved."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._turn = loop, asyncio.Lock()
        return self._turn

    @property
    def shared(self) -> bool:
        """True if several tables, or several nodes of this process, use it."""
        return len(self.watchers) > 1

    def under(self, token: int) -> list[Key]:
        """Return the rows of one lease that have reservations."""
        return [key for key in self._reserved if key[0] == token]

    def reserve(self, key: Key, costs: Sequence[float]) -> None:
        """Reserve what a row needs."""
        self._reserved[key] = list(costs)

    def free(self, key: Key) -> None:
        """Free what a row reserved, if anything."""
        if self._reserved.pop(key, None) is not None:
            for tell in self.watchers:
                tell()


class BudgetUse:
    """A budget's fragments in the statements of one table."""

    def __init__(self, budget: Budget, alias: str) -> None:
        self.budget = budget
        self._columns = [f"{identifier(alias)}.{identifier(column)}" for column in budget.cost.values()]
        self._warned = float("-inf")

    def costs(self) -> str:
        """Return the SQL expressions of a row's costs."""
        return ", ".join(f"greatest(coalesce({column}, 0), 0)" for column in self._columns)

    def within(self, after: int) -> tuple[str, str, str, list[Any]]:
        """Return row conditions, running sums, their conditions and values; parameters are numbered after ``after``."""
        where = sums = fits = ""
        for at, column in enumerate(self._columns, 1):
            where += f"\n      and (coalesce({column}, 0) <= ${after + at}::float8)"
            sums += f", sum(costs[{at}]) over (rows unbounded preceding) as sum{at}"
            fits += f" and sum{at} <= ${after + at}::float8"
        return where, sums, fits, list(self.budget.left.values())

    def exceeds(self, after: int) -> tuple[str, list[float]]:
        """Return the condition of rows that need more than the total."""
        text = "".join(f" or {column} > ${after + at}::float8" for at, column in enumerate(self._columns, 1))
        return text, list(self.budget.total.values())

    def may_warn(self) -> bool:
        """Return whether to search for oversized rows now; true at most once a minute."""
        now = time.monotonic()
        if now - self._warned < 60:
            return False
        self._warned = now
        return True
