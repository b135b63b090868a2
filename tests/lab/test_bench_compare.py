"""The comparison with rivals runs, at a small part of its size: that it reports, not how fast anything is.

Nothing is installed: one rival is measured, if its environment exists. `nodes` is left out: it is `drain2` with more
processes than a machine that runs tests should start.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from howdah_lab.bench.environment import is_prepared
from howdah_lab.bench.report import summary
from howdah_lab.bench.results import begin
from howdah_lab.bench.scenarios import SCENARIOS
from howdah_lab.bench.system import OURS, load

ROOT = Path(__file__).parents[2]
RIVAL = "pgqueuer"
BESIDE = [name for name, each in SCENARIOS.items() if each.compared and name not in ("nodes", "history", "growth")]
BENCH_TIMEOUT = 900


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, writing into a folder."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "howdah",
            "bench",
            "--compare",
            "--output",
            str(folder),
            "--rounds",
            "1",
            "--offline",
            *arguments,
        ],
        cwd=ROOT,
        env=others,
        capture_output=True,
        text=True,
        timeout=BENCH_TIMEOUT,
    )


def names(scenarios: list[str]) -> list[str]:
    return [word for name in scenarios for word in ("--scenario", name)]


def runs(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())["runs"]
    return found


@pytest.mark.timeout(BENCH_TIMEOUT)
def test_every_scenario_is_measured_and_ratios_are_printed(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", OURS, "--scale", "0.002", *names(BESIDE))

    assert done.returncode == 0, done.stderr
    measured = {run["scenario"]: set(run["figures"]) for run in runs(tmp_path) if run["system"] == OURS}
    assert measured == {name: set(SCENARIOS[name].quantities) for name in BESIDE}
    page = (tmp_path / "RESULTS.md").read_text()
    assert re.search(r"^\| enqueue one at a time / single insert \| 0.65x \| [\d.]+x \| pgbench \|", page, re.MULTILINE)
    assert re.search(r"^\| snapshot held, round 5 / round 1 \| 0.95x \| [\d.]+x \| itself \|", page, re.MULTILINE)
    assert "| drain, one process | 7x | — | — | not measured |" in page
    assert "a trial, no result" in page
    assert (tmp_path / "plots" / "drain.svg").read_text().startswith("<svg ")


@pytest.mark.timeout(BENCH_TIMEOUT)
def test_history_and_growth_run_and_an_interrupted_benchmark_goes_on(tmp_path: Path) -> None:
    small = ("--only", OURS, "--scale", "0.001")
    first = bench(tmp_path, *small, "--scenario", "history")
    assert first.returncode == 0, first.stderr
    before = runs(tmp_path)

    second = bench(tmp_path, *small, "--resume", *names(["history", "growth"]))

    assert second.returncode == 0, second.stderr
    found = runs(tmp_path)
    assert [run["scenario"] for run in found] == ["history", "growth"]
    assert found[:1] == before
    for run in found:
        assert set(run["figures"]) == set(SCENARIOS[run["scenario"]].quantities)


@pytest.mark.timeout(BENCH_TIMEOUT)
def test_a_rival_is_measured_beside_us(tmp_path: Path) -> None:
    if not is_prepared(load(RIVAL)):
        pytest.skip(f"{RIVAL} is not installed; scripts/bench --only {RIVAL} installs it")

    done = bench(tmp_path, "--only", RIVAL, "--scale", "0.002", "--scenario", "drain")

    assert done.returncode == 0, done.stderr
    assert [run["system"] for run in runs(tmp_path)] == [OURS, RIVAL]
    page = (tmp_path / "RESULTS.md").read_text()
    assert re.search(r"^\| drain, one process \| 7x \| [\d.]+x \| PgQueuer \|", page, re.MULTILINE)
    assert "How many times better Howdah is" in page


def test_a_record_of_another_size_is_not_gone_on_with(tmp_path: Path) -> None:
    summary.save(begin(0.5, 1), tmp_path / "results.json")

    done = bench(tmp_path, "--resume", "--scale", "0.001")

    assert done.returncode == 2
    assert "--scale 0.5 --rounds 1" in done.stderr
