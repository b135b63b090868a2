"""Summary of results: the figures of each scenario and system over all rounds. Also the JSON file of results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from howdah_lab.bench.figure import Figure
from howdah_lab.bench.results import Results, ScenarioRun
from howdah_lab.bench.scenario import Quantity
from howdah_lab.bench.scenarios import KNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSummary:
    """One scenario with one system."""

    scenario: str
    system: str
    about: str
    jobs: int
    """In one round."""
    seconds: float
    figures: list[Figure]
    error: str | None
    """The last reason why a run has no figures."""
    left_out: str | None
    """Missing requirement on this machine; not a failure."""


def summarise(results: Results) -> list[ScenarioSummary]:
    """Return every scenario with every system, in the order in which they were measured first."""
    pairs = dict.fromkeys((run.scenario, run.system) for run in results.runs)
    return [_summary(results, *pair) for pair in pairs]


def quantities(results: Results, scenario: str) -> dict[str, Quantity]:
    """Return the quantities of a scenario that were measured, by name."""
    declared = KNOWN[scenario].quantities
    units = {name: run.units.get(name, "") for run in results.runs if run.scenario == scenario for name in run.figures}
    ordered = [name for name in declared if name in units] + [name for name in units if name not in declared]
    return {name: declared.get(name) or Quantity(title=name, unit=units[name]) for name in ordered}


def as_json(results: Results) -> dict[str, Any]:
    """Return the results with their summary, as results.json and ``--json`` have them."""
    found: dict[str, Any] = msgspec.to_builtins(results)
    runs = found.pop("runs")
    return found | {"scenarios": msgspec.to_builtins(summarise(results)), "runs": runs}


def load(file: Path) -> Results:
    """Read results.json."""
    return msgspec.json.decode(file.read_bytes(), type=Results)


def save(results: Results, file: Path) -> None:
    """Write results.json; the file is complete at every moment."""
    beside = file.with_suffix(".tmp")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(as_json(results)), indent=1) + b"\n")
    os.replace(beside, file)


def _summary(results: Results, scenario: str, system: str) -> ScenarioSummary:
    known, runs = KNOWN[scenario], list(_runs(results, scenario, system))
    return ScenarioSummary(
        scenario=scenario,
        system=system,
        about=known.about,
        jobs=known.jobs(results.scale),
        seconds=sum(run.seconds for run in runs),
        figures=[
            Figure(quantity.title, quantity.unit, figure.rounds)
            for name, quantity in quantities(results, scenario).items()
            if (figure := results.figure(scenario, system, name))
        ],
        error=next((run.error for run in reversed(runs) if run.error), None),
        left_out=next((run.left_out for run in reversed(runs) if run.left_out), None),
    )


def _runs(results: Results, scenario: str, system: str) -> Iterator[ScenarioRun]:
    return (run for run in results.runs if (run.scenario, run.system) == (scenario, system))
