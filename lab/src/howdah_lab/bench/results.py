"""Results of a benchmark: every run, saved after each of them, so that an interrupted benchmark can be resumed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from howdah_lab.bench.figure import Figure


class ScenarioRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run of a scenario with a system."""

    scenario: str
    system: str
    round: int
    seconds: float
    figures: dict[str, float | list[float]] = {}
    """One value; or one for each round, if the scenario repeats the rounds itself."""
    units: dict[str, str] = {}
    """Units of figures that are not among the quantities of the scenario."""
    error: str | None = None
    """Reason why there are no figures."""
    left_out: str | None = None
    """Missing requirement on this machine; not a failure."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Scenario, system and round."""
        return self.scenario, self.system, self.round


class Results(msgspec.Struct, kw_only=True):
    """All runs of a benchmark; every report is written from them."""

    scale: float
    rounds: int
    processes: int = 1
    began: str
    resumed: list[str] = []
    """Times of resumption, with the scenarios."""
    place: dict[str, Any] = {}
    """The machine, the servers and their settings."""
    systems: dict[str, dict[str, Any]] = {}
    """Versions, as each driver reports them."""
    missing: dict[str, str] = {}
    """Systems that could not run at all, with the reason."""
    runs: list[ScenarioRun] = []

    @property
    def options(self) -> str:
        """The options on which the figures depend."""
        processes = f" --processes {self.processes}" if self.processes > 1 else ""
        return f"--scale {self.scale:g} --rounds {self.rounds}{processes}"

    def has(self, scenario: str, system: str, round: int) -> bool:
        """Return whether this run exists and succeeded."""
        return any(run.key == (scenario, system, round) and not run.error for run in self.runs)

    def add(self, run: ScenarioRun) -> None:
        """Add a run; it replaces an earlier one of the same round."""
        self.runs = [old for old in self.runs if old.key != run.key] + [run]

    def figure(self, scenario: str, system: str, name: str, unit: str = "") -> Figure | None:
        """Return a quantity over all rounds, or ``None`` if it was not measured."""
        values: list[float] = []
        for run in self.runs:
            if (run.scenario, run.system) == (scenario, system) and name in run.figures:
                found = run.figures[name]
                values += found if isinstance(found, list) else [found]
        return Figure(name, unit, values) if values else None

    def errors(self) -> list[ScenarioRun]:
        """Return the runs that failed."""
        return [run for run in self.runs if run.error]


def begin(scale: float, rounds: int, processes: int = 1) -> Results:
    """Return results without runs."""
    return Results(scale=scale, rounds=rounds, processes=processes, began=now())


def now() -> str:
    """Return the current time as a report shows it."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
