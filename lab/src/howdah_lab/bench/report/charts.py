"""Charts of the figures that are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from howdah_lab.bench.report import svg
from howdah_lab.bench.results import Results
from howdah_lab.bench.scenarios import SCENARIOS
from howdah_lab.bench.scenarios.decay import DEPTHS, ROUNDS
from howdah_lab.bench.scenarios.drain import NODES
from howdah_lab.bench.system import OURS, System

BARS = {
    "drain.svg": ("drain", "nothing", "Drain, one worker process"),
    "drain2.svg": ("drain2", "nothing", "Drain, two worker processes"),
    "plain.svg": ("drain", "plain", "Drain of plain functions, one worker process"),
    "insert.svg": ("drain", "insert", "Drain of handlers with one insert"),
    "bulk.svg": ("enqueue", "bulk", "Enqueue in bulk"),
    "callers.svg": ("enqueue", "callers 1000", "Enqueue, 1,000 concurrent callers"),
    "one.svg": ("enqueue", "one", "Enqueue one at a time"),
    "latency-p50.svg": ("latency", "idle p50", "Idle queue, enqueue to start, p50"),
    "latency-p99.svg": ("latency", "idle p99", "Idle queue, enqueue to start, p99"),
    "memory.svg": ("drain", "memory", "Memory of a worker, at its peak"),
}
LINES = {
    "held.svg": ("held", [f"held {number}" for number in range(1, ROUNDS + 1)], "Drain by rounds, snapshot held"),
    "growth.svg": ("growth", [f"{depth}" for depth in DEPTHS], "Drain by jobs queued"),
    "nodes.svg": ("nodes", [f"{count}" for count in NODES], "Drain by worker processes"),
}


def draw(results: Results, systems: Mapping[str, System], folder: Path) -> dict[str, str]:
    """Draw what was measured; returns the titles by file name."""
    pages: dict[str, tuple[str, str]] = {}
    for file, (scenario, quantity, title) in BARS.items():
        if page := _bars(results, systems, scenario, quantity, title):
            pages[file] = title, page
    for file, (scenario, quantities, title) in LINES.items():
        if page := _lines(results, systems, scenario, quantities, title):
            pages[file] = title, page
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        if old.name not in pages:
            old.unlink()
    for file, (_, page) in pages.items():
        (folder / file).write_text(page, encoding="utf-8")
    return {file: title for file, (title, _) in pages.items()}


def _bars(results: Results, systems: Mapping[str, System], scenario: str, quantity: str, title: str) -> str | None:
    judge = SCENARIOS[scenario].quantities[quantity]
    rows = []
    for name, system in systems.items():
        if figure := results.figure(scenario, name, quantity):
            rows.append((system.title, figure.median, figure.low, figure.high))
    rows.sort(key=lambda row: row[1], reverse=not judge.less_is_better)
    return svg.bars(title, judge.unit, rows, systems[OURS].title) if rows else None


def _lines(results: Results, systems: Mapping[str, System], scenario: str, names: list[str], title: str) -> str | None:
    series: dict[str, list[float | None]] = {}
    for system in systems.values():
        figures = [results.figure(scenario, system.name, name) for name in names]
        if any(figures):
            series[system.title] = [figure.median if figure else None for figure in figures]
    ticks = [f"{int(name):,}" if name.isdecimal() else name.split()[-1] for name in names]
    return svg.lines(title, SCENARIOS[scenario].quantities[names[0]].unit, ticks, series) if series else None
