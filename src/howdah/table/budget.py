"""Budget: what rows worked on at once may use up together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from howdah.errors import ConfigError
from howdah.pg.sql import identifier

Key = tuple[int, int | str]


class Budget:
    """So much of each resource: ``Budget(memory=8_000, cost={"memory": "size_mb"})``.

    ``cost`` names the column of the table that says how much of a resource a row needs. A row too big for what is
    left is passed over and does not hold up smaller ones; one bigger than the whole is reported. Give several
    tables the same budget and they share it.
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
        """Called when something is given back; several tables may share a budget."""

    def __repr__(self) -> str:
        totals = ", ".join(f"{name}={amount:g}" for name, amount in self.total.items())
        return f"Budget({totals}, cost={self.cost!r})"

    @property
    def left(self) -> dict[str, float]:
        """How much of each resource is free."""
        reserved = self._reserved.values()
        return {name: total - sum(each[at] for each in reserved) for at, (name, total) in enumerate(self.total.items())}

    @property
    def turn(self) -> asyncio.Lock:
        """Held from looking at what is left until it is reserved."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._turn = loop, asyncio.Lock()
        return self._turn

    @property
    def shared(self) -> bool:
        """Whether several tables, or several nodes of this process, use it."""
        return len(self.watchers) > 1

    def under(self, token: int) -> list[Key]:
        """The rows of one lease that have something reserved."""
        return [key for key in self._reserved if key[0] == token]

    def reserve(self, key: Key, costs: Sequence[float]) -> None:
        """Set aside what a row needs."""
        self._reserved[key] = list(costs)

    def free(self, key: Key) -> None:
        """Give back what a row had, if it had anything."""
        if self._reserved.pop(key, None) is not None:
            for tell in self.watchers:
                tell()


class Purse:
    """A budget as part of the statements of one table."""

    def __init__(self, budget: Budget, alias: str) -> None:
        self.budget = budget
        self._columns = [f"{identifier(alias)}.{identifier(column)}" for column in budget.cost.values()]
        self._warned = float("-inf")

    def costs(self) -> str:
        """What each row needs, as a list."""
        return ", ".join(f"greatest(coalesce({column}, 0), 0)" for column in self._columns)

    def within(self, after: int) -> tuple[str, str, str, list[Any]]:
        """Conditions on rows, running sums, conditions on these, and values; parameters count on from ``after``."""
        where = sums = fits = ""
        for at, column in enumerate(self._columns, 1):
            where += f"\n      and (coalesce({column}, 0) <= ${after + at}::float8)"
            sums += f", sum(costs[{at}]) over (rows unbounded preceding) as sum{at}"
            fits += f" and sum{at} <= ${after + at}::float8"
        return where, sums, fits, list(self.budget.left.values())

    def exceeds(self, after: int) -> tuple[str, list[float]]:
        """The condition of a row that is bigger than the whole."""
        text = "".join(f" or {column} > ${after + at}::float8" for at, column in enumerate(self._columns, 1))
        return text, list(self.budget.total.values())

    def may_warn(self) -> bool:
        """Whether it is time to look for rows that are too big; at most once a minute."""
        now = time.monotonic()
        if now - self._warned < 60:
            return False
        self._warned = now
        return True
