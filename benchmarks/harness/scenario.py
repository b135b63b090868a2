"""Scenario: one thing that is measured, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness.rival import OURS, Rival
from benchmarks.harness.session import Arena


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What a figure is of."""

    title: str
    unit: str
    less_is_better: bool = False

    def ratio(self, ours: float, theirs: float) -> float:
        """How many times better we are; below one, how much worse."""
        return (theirs / ours if ours else 0.0) if self.less_is_better else (ours / theirs if theirs else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Parameters of a scenario."""

    arena: Arena
    rival: Rival
    scale: float

    def jobs(self, most: int, what: str, *, of: int = 1, seconds: float = 1.5) -> int:
        """How many jobs this rival is given: a multiple of ``of``, and at least that."""
        wanted = round(self.rival.jobs(most, what, seconds) * self.scale)
        return max(1, wanted // of) * of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How it is measured, and with whom."""

    name: str
    about: str
    quantities: Mapping[str, Quantity]
    measure: Callable[[Setting], Awaitable[dict[str, float]]]
    """Returns figures by the names of quantities; those a rival cannot do are left out."""
    close_only: bool = False
    """Only we and the closest rivals."""
    needs: str | None = None
    """The kind without which a rival is left out."""

    def takes(self, rival: Rival) -> bool:
        """Return whether this rival is measured."""
        if self.needs and self.needs not in rival.kinds:
            return False
        return rival.name == OURS or rival.close or not self.close_only
