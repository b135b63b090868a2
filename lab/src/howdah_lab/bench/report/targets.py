"""Targets of Howdah, most of them as ratios to rivals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from howdah_lab.bench.results import Results
from howdah_lab.bench.scenarios import SCENARIOS, ceiling
from howdah_lab.bench.system import OURS, System


@dataclass(frozen=True, slots=True)
class Reached:
    """Result of a target."""

    value: float
    beside: str
    """Whom it was compared with."""


Measure = Callable[[Results, Mapping[str, System]], Reached | None]


@dataclass(frozen=True, slots=True)
class PerformanceTarget:
    """A ratio to reach, or with ``most`` a figure to stay below."""

    title: str
    wanted: float
    measure: Measure
    most: bool = False
    unit: str = ""
    limits: str = ""
    """Reason why it is not reached, and the attempts so far."""

    def says(self, value: float) -> bool:
        """Return whether this value reaches the target."""
        return value < self.wanted if self.most else value >= self.wanted


def versus(scenario: str, quantity: str, *names: str, server: str | None = None) -> Measure:
    """Ours beside the best of these rivals, or of all."""

    def measure(results: Results, systems: Mapping[str, System]) -> Reached | None:
        ours = results.figure(scenario, OURS, quantity)
        judge = SCENARIOS[scenario].quantities[quantity]
        ratios = []
        for name, system in systems.items():
            asked = name in names if names else name != OURS and server in (None, system.server)
            theirs = results.figure(scenario, name, quantity) if asked else None
            if ours and theirs:
                ratios.append((judge.ratio(ours.median, theirs.median), system.title))
        return Reached(*min(ratios)) if ratios else None

    return measure


def alone(scenario: str, quantity: str) -> Measure:
    """Ours by itself."""

    def measure(results: Results, systems: Mapping[str, System]) -> Reached | None:
        ours = results.figure(scenario, OURS, quantity)
        return Reached(ours.median, "itself") if ours else None

    return measure


def _beside_pgbench(results: Results, systems: Mapping[str, System]) -> Reached | None:
    ours, plain = results.figure("enqueue", OURS, "one"), results.figure(ceiling.NAME, ceiling.NAME, "one")
    return Reached(ours.median / plain.median, "pgbench") if ours and plain else None


NO_DISK = "Redis answers without writing to disk; here the call returns when the job is committed and flushed."

TARGETS = (
    PerformanceTarget("drain, one process", 2.5, versus("drain", "nothing", "graphile-worker")),
    PerformanceTarget("drain, one process", 7, versus("drain", "nothing", "pgqueuer")),
    PerformanceTarget("drain, two processes, best rival with two", 3, versus("drain2", "nothing")),
    PerformanceTarget(
        "bulk enqueue, best rival",
        2.5,
        versus("enqueue", "bulk"),
        limits="The client needs 3 to 4 µs of Python per job to check, encode and write typed arguments;"
        " the rival sends its JSON unchecked. Tried: jobs by column instead of one by one, text streamed without a"
        " thread, unused columns left out, fewer calls per job. Before that it was 7 µs, and 1.72x.",
    ),
    PerformanceTarget("enqueue, 1,000 concurrent callers, best rival", 5, versus("enqueue", "callers 1000")),
    PerformanceTarget(
        "enqueue one at a time / single insert",
        0.65,
        _beside_pgbench,
        limits="The client is a driver and an event loop in Python, pgbench is a loop in C; and a job is two rows."
        " Tried: one statement instead of a function (69 instead of 94 µs on the server), no transaction around a"
        " single job; before that it was 0.48x. Not done: sending from the caller's own task, because concurrent"
        " calls would no longer share a batch, which is what makes many callers fast.",
    ),
    PerformanceTarget("idle latency p50, best on PostgreSQL", 1, versus("latency", "idle p50", server="postgresql")),
    PerformanceTarget("idle latency p99, best on PostgreSQL", 1, versus("latency", "idle p99", server="postgresql")),
    PerformanceTarget("idle latency p50, best of all", 1, versus("latency", "idle p50"), limits=NO_DISK),
    PerformanceTarget("idle latency p99, best of all", 1, versus("latency", "idle p99"), limits=NO_DISK),
    PerformanceTarget("snapshot held, round 5 / round 1", 0.95, alone("held", "held last/first")),
    PerformanceTarget(
        "3 million finished jobs behind / none",
        0.95,
        alone("history", "full/empty"),
        limits="The difference is waiting time, not work: the table of this scenario has the CPU per job with and"
        " without history. Tried: flushing the file system's cache before a run, which made the difference smaller.",
    ),
    PerformanceTarget("10^6 jobs queued / 10^4", 0.9, alone("growth", "deep/shallow")),
    PerformanceTarget("memory of a worker draining 50,000 jobs", 80, alone("drain", "memory"), most=True, unit=" MB"),
)
