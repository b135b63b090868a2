"""Scenarios of the benchmark, and the parameters of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from howdah.errors import HowdahError
from howdah_lab.bench.bench_schema import BenchSchema
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.session import Workbench
from howdah_lab.bench.system import OURS, System

JOBS = 50_000
"""Jobs in one round of drain, at scale 1."""


class LeftOut(HowdahError):
    """A scenario cannot be measured here; the message names what it needs."""


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
class Plan:
    """Parameters of one run: a scenario with a system."""

    workbench: Workbench
    system: System
    scale: float = 1.0
    """Fraction of the jobs."""
    jobs: int = JOBS
    """In one round of this scenario."""
    rounds: int = 1
    """Rounds of a scenario that repeats them itself."""
    processes: int = 1
    """Worker processes, where a scenario does not set their number."""
    comparing: bool = False
    """True if rivals are measured in turn with Howdah: short measurements are repeated more often."""
    tick: Callable[[], None] = lambda: None
    """Called after every round of a scenario that repeats them itself."""
    own_schema: BenchSchema | None = None

    @property
    def schema(self) -> BenchSchema:
        """The empty schema of a scenario that measures Howdah only."""
        assert self.own_schema is not None
        return self.own_schema

    def jobs_of(self, most: int, what: str, *, of: int = 1, seconds: float = 1.5) -> int:
        """Return the jobs of one run with this system: a multiple of ``of``, and at least that."""
        wanted = round(self.system.jobs(most, what, seconds) * self.scale)
        return max(1, wanted // of) * of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario."""

    name: str
    about: str
    measure: Callable[[Plan], Awaitable[Mapping[str, float] | Sequence[Figure]]]
    """Return figures by the names of ``quantities``, without those that the system cannot do; or finished figures."""
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    """Empty if the scenario names its figures itself."""
    share: float = 1.0
    """Jobs of one round, as a fraction of ``--jobs``."""
    default: bool = True
    """True if `howdah bench` measures it unless others are named."""
    compared: bool = True
    """True if comparisons with rivals measure it unless others are named."""
    close_only: bool = False
    """True if only Howdah and its closest rivals are measured."""
    ours_only: bool = False
    """True if it measures Howdah only: in a schema of its own, all rounds in one run."""
    needs: str | None = None
    """The kind without which a system is left out."""
    parts: int = 1
    """Passes through all rounds, where the scenario repeats them itself."""
    once: bool = False
    """True if it always has a single round."""

    def takes(self, system: System) -> bool:
        """Return whether this system is measured."""
        if self.needs and self.needs not in system.kinds:
            return False
        return system.name == OURS or not (self.ours_only or (self.close_only and not system.close))

    def jobs(self, scale: float) -> int:
        """Return the jobs of one round."""
        return max(1, round(JOBS * scale * self.share))

    def rounds(self, wanted: int) -> int:
        """Return the number of runs: one, if the scenario repeats the rounds itself."""
        return 1 if self.ours_only else wanted

    def ticks(self, rounds: int) -> int:
        """Return how often ``tick`` is called in one run."""
        return (1 if self.once else self.parts * rounds) if self.ours_only else 1
