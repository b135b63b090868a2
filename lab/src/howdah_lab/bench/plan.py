"""Scenarios of a benchmark and their parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from howdah.errors import HowdahError
from howdah_lab.bench.bench_schema import BenchSchema
from howdah_lab.bench.figure import Figure


class LeftOut(HowdahError):
    """A scenario cannot be measured here; the message names what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a scenario."""

    schema: BenchSchema
    jobs: int
    """In one round of this scenario."""
    rounds: int
    processes: int
    tick: Callable[[], None]
    """Called after every round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnScenario:
    """One scenario."""

    name: str
    about: str
    measure: Callable[[Plan], Awaitable[Sequence[Figure]]]
    share: float
    """Of the jobs asked for, those of one round."""
    parts: int = 1
    """Number of passes through all rounds."""
    once: bool = False
    """True if it always has a single round."""
    alone: bool = False
    """True if it is measured only when named, because it takes minutes and gigabytes."""

    def jobs(self, wanted: int) -> int:
        """The jobs of one round."""
        return max(1, round(wanted * self.share))

    def steps(self, rounds: int) -> int:
        """Number of ticks."""
        return 1 if self.once else self.parts * rounds
