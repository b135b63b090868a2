"""Plan: how much a benchmark does, and where."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from howdah.bench.figure import Figure
from howdah.bench.ground import Ground
from howdah.errors import HowdahError


class LeftOut(HowdahError):
    """A scenario cannot be measured here; says what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every scenario is given."""

    ground: Ground
    jobs: int
    """In one round of this scenario."""
    rounds: int
    processes: int
    tick: Callable[[], None]
    """Called after every round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing to measure."""

    name: str
    about: str
    measure: Callable[[Plan], Awaitable[Sequence[Figure]]]
    share: float
    """Of the jobs asked for, those of one round."""
    parts: int = 1
    """How many times it goes through all rounds."""
    once: bool = False
    """It has a single round, whatever was asked for."""
    alone: bool = False
    """Only measured when it is named: it takes minutes, and gigabytes."""

    def jobs(self, wanted: int) -> int:
        """The jobs of one round."""
        return max(1, round(wanted * self.share))

    def steps(self, rounds: int) -> int:
        """How often it will tick."""
        return 1 if self.once else self.parts * rounds
