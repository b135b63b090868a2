"""Reports on figures: ratios, targets, failures, the JSON file; and the order of runs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from howdah_lab.bench.report import markdown, summary, svg
from howdah_lab.bench.report.targets import TARGETS
from howdah_lab.bench.results import Results, ScenarioRun
from howdah_lab.bench.runner import plan
from howdah_lab.bench.scenarios import SCENARIOS
from howdah_lab.bench.system import OURS, load_all

SYSTEMS = load_all()


def measured(*runs: tuple[str, str, dict[str, float]], rounds: int = 1) -> Results:
    made = Results(scale=1.0, rounds=rounds, began="today")
    for scenario, rival, figures in runs:
        number = 1 + sum(run.scenario == scenario and run.system == rival for run in made.runs)
        made.add(ScenarioRun(scenario=scenario, system=rival, round=number, seconds=1.0, figures=figures))
    return made


def page(made: Results, folder: Path) -> str:
    markdown.write(made, SYSTEMS, folder)
    return (folder / "RESULTS.md").read_text(encoding="utf-8")


def test_ratios_say_how_many_times_better_we_are_whichever_way_is_better(tmp_path: Path) -> None:
    made = measured(
        ("drain", OURS, {"nothing": 1000.0, "memory": 50.0}),
        ("drain", "graphile-worker", {"nothing": 250.0, "memory": 100.0}),
    )

    text = page(made, tmp_path)

    assert "| Graphile Worker | 4.00x | 2.00x |" in text
    assert "| drain, one process | 2.5x | 4.00x | Graphile Worker | yes |" in text
    assert "| memory of a worker draining 50,000 jobs | below 80 MB | 50.0 MB | itself | yes |" in text


def test_the_best_rival_is_the_one_that_is_hardest_to_beat(tmp_path: Path) -> None:
    idle = {"idle p50": 2.0, "idle p99": 4.0}
    made = measured(
        ("latency", OURS, idle),
        ("latency", "pgqueuer", {"idle p50": 3.0, "idle p99": 5.0}),
        ("latency", "celery", {"idle p50": 1.0, "idle p99": 8.0}),
    )

    text = page(made, tmp_path)

    assert "| idle latency p50, best on PostgreSQL | 1x | 1.50x | PgQueuer | yes |" in text
    assert "| idle latency p50, best of all | 1x | 0.50x | Celery (Redis) | **no** |" in text
    assert "| idle latency p99, best of all | 1x | 1.25x | PgQueuer | yes |" in text


def test_the_spread_of_rounds_is_shown(tmp_path: Path) -> None:
    ours = [("enqueue", OURS, {"bulk": rate}) for rate in (300.0, 100.0, 200.0)]
    theirs = [("enqueue", "awa", {"bulk": rate}) for rate in (100.0, 100.0, 50.0)]

    text = page(measured(*ours, *theirs, rounds=3), tmp_path)

    assert "| Howdah | 200 (100–300) |" in text
    assert "| awa | 2.00x (1.00–4.00) |" in text


def test_what_failed_is_in_the_table_with_its_reason(tmp_path: Path) -> None:
    made = measured(("drain", OURS, {"nothing": 1000.0}))
    made.missing["oban"] = "it needs Python 3.12 or newer"
    made.add(ScenarioRun(scenario="drain", system="awa", round=1, seconds=1.0, error="CheckFailed: 9 | 10\nran"))

    text = page(made, tmp_path)

    assert "| Oban, all | it needs Python 3.12 or newer |" in text
    assert "| awa, drain, round 1 | CheckFailed: 9 \\| 10 ran |" in text


def test_every_target_asks_for_a_quantity_that_is_measured() -> None:
    everything = [
        (name, rival, dict.fromkeys(scenario.quantities, 1.0))
        for name, scenario in SCENARIOS.items()
        for rival in SYSTEMS
        if scenario.takes(SYSTEMS[rival])
    ]
    made = measured(("pgbench", "pgbench", {"one": 1.0}), *everything)

    assert all(target.measure(made, SYSTEMS) for target in TARGETS)


def test_we_are_measured_in_every_round_and_rivals_in_turn_with_us() -> None:
    steps = plan([SYSTEMS[OURS], SYSTEMS["awa"]], [SCENARIOS["drain"]], 2)

    assert steps == [("drain", OURS, 1), ("drain", "awa", 1), ("drain", OURS, 2), ("drain", "awa", 2)]


def test_a_failed_run_is_tried_again_and_a_good_one_is_not() -> None:
    made = measured(("drain", OURS, {"nothing": 1.0}))
    made.add(ScenarioRun(scenario="drain", system="awa", round=1, seconds=1.0, error="it ended"))

    assert made.has("drain", OURS, 1)
    assert not made.has("drain", "awa", 1)
    made.add(ScenarioRun(scenario="drain", system="awa", round=1, seconds=1.0, figures={"nothing": 1.0}))
    assert made.has("drain", "awa", 1)
    assert made.errors() == []


def test_the_file_has_every_run_and_a_summary_and_can_be_continued(tmp_path: Path) -> None:
    made = measured(("drain", OURS, {"nothing": 1.0}), ("drain", OURS, {"nothing": 3.0}), rounds=2)
    made.add(
        ScenarioRun(scenario="append", system=OURS, round=1, seconds=1.0, figures={"x": [1.0, 2.0]}, units={"x": "ms"})
    )

    summary.save(made, tmp_path / "results.json")

    parsed = json.loads((tmp_path / "results.json").read_text())
    [drain, append] = parsed["scenarios"]
    assert (drain["scenario"], drain["system"], drain["figures"][0]["name"]) == (
        "drain",
        OURS,
        "async handlers that do nothing",
    )
    assert (drain["figures"][0]["median"], drain["figures"][0]["rounds"]) == (2.0, [1.0, 3.0])
    assert (append["figures"][0]["unit"], append["figures"][0]["rounds"]) == ("ms", [1.0, 2.0])
    assert summary.load(tmp_path / "results.json") == made


def test_plots_are_well_formed() -> None:
    bars = svg.bars("A & B", "jobs/s", [("Howdah", 2.0, 1.0, 3.0), ("<other>", 0.0, 0.0, 0.0)], "Howdah")
    lines = svg.lines("A", "jobs/s", ["1", "2"], {"Howdah": [1.0, None], "other": [None, 2.0]})

    for page in (bars, lines):
        assert ElementTree.fromstring(page).tag.endswith("svg")


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_every_rival_is_pinned_and_names_no_address(name: str) -> None:
    rival = SYSTEMS[name]
    if name != OURS:
        file = rival.folder / ("package.json" if rival.language == "node" else "requirements.txt")
        text = file.read_text()
        assert "://" not in text
        assert rival.language == "node" or all("==" in line for line in text.splitlines())
    assert (rival.folder / ("driver.mjs" if rival.language == "node" else "driver.py")).exists()
