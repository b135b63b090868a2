"""Scenario: one thing that is measured, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from howdah_lab.bench.session import Testbed
from howdah_lab.bench.system import OURS, System


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A measured quantity."""

    title: str
    unit: str
    less_is_better: bool = False

    def ratio(self, ours: float, theirs: float) -> float:
        """Return how many times better our figure is; below 1 it is worse."""
        return (theirs / ours if ours else 0.0) if self.less_is_better else (ours / theirs if theirs else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Parameters of a scenario."""

    testbed: Testbed
    rival: System
    scale: float

    def jobs(self, most: int, what: str, *, of: int = 1, seconds: float = 1.5) -> int:
        """Return the jobs of one run with this system: a multiple of ``of``, and at least that."""
        wanted = round(self.rival.jobs(most, what, seconds) * self.scale)
        return max(1, wanted // of) * of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario."""

    name: str
    about: str
    quantities: Mapping[str, Quantity]
    measure: Callable[[Setting], Awaitable[dict[str, float]]]
    """Returns figures by the names of quantities; those a rival cannot do are left out."""
    close_only: bool = False
    """Only we and the closest rivals."""
    needs: str | None = None
    """The kind without which a rival is left out."""

    def takes(self, rival: System) -> bool:
        """Return whether this rival is measured."""
        if self.needs and self.needs not in rival.kinds:
            return False
        return rival.name == OURS or rival.close or not self.close_only
