"""Results: what was measured so far, kept in a file after every run, so that an interrupted benchmark can go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import msgspec

from howdah_lab.bench.figure import Figure


class ScenarioRun(msgspec.Struct, kw_only=True):
    """One scenario with one rival, once."""

    scenario: str
    rival: str
    round: int
    seconds: float
    figures: dict[str, float] = {}
    error: str | None = None


class Results(msgspec.Struct, kw_only=True):
    """Everything RESULTS.md is written from."""

    scale: float
    rounds: int
    began: str
    resumed: list[str] = []
    """When it was gone on with, and with what."""
    place: dict[str, Any] = {}
    """The machine, the servers and their settings."""
    rivals: dict[str, dict[str, Any]] = {}
    """Versions, as each driver reports them."""
    missing: dict[str, str] = {}
    """Rivals that could not run at all, with the reason."""
    runs: list[ScenarioRun] = []

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read it."""
        return msgspec.json.decode(file.read_bytes(), type=cls)

    def save(self, file: Path) -> None:
        """Write it; what is there is whole at every moment."""
        beside = file.with_suffix(".tmp")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        os.replace(beside, file)

    def has(self, scenario: str, rival: str, round: int) -> bool:
        """Return whether this run exists and succeeded."""
        key = (scenario, rival, round)
        return any((run.scenario, run.rival, run.round) == key and not run.error for run in self.runs)

    def add(self, run: ScenarioRun) -> None:
        """Put a run in, instead of an earlier one of the same."""
        key = (run.scenario, run.rival, run.round)
        self.runs = [old for old in self.runs if (old.scenario, old.rival, old.round) != key] + [run]

    def figure(self, scenario: str, rival: str, name: str, unit: str = "") -> Figure | None:
        """A quantity over all rounds; none when it was not measured."""
        values = [
            run.figures[name]
            for run in self.runs
            if run.scenario == scenario and run.rival == rival and name in run.figures
        ]
        return Figure(name, unit, values) if values else None

    def errors(self) -> list[ScenarioRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.error]
