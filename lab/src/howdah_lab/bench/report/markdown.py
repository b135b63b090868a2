"""RESULTS.md with its charts, written from the results alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from howdah_lab.bench.figure import Figure
from howdah_lab.bench.report import charts
from howdah_lab.bench.report.summary import quantities
from howdah_lab.bench.report.svg import number
from howdah_lab.bench.report.targets import TARGETS
from howdah_lab.bench.results import Results
from howdah_lab.bench.scenario import Quantity, Scenario
from howdah_lab.bench.scenarios import SCENARIOS, ceiling
from howdah_lab.bench.system import OURS, System

NONE = "—"
COLUMNS = 5
"""Of a table at most: a wider one is hard to read."""


def write(results: Results, systems: Mapping[str, System], folder: Path) -> None:
    """Write RESULTS.md and the charts into a folder."""
    drawn = charts.draw(results, systems, folder / "plots")
    parts = [_head(results), _targets(results, systems), _plots(drawn)]
    parts += [_scenario(results, systems, scenario) for scenario in SCENARIOS.values()]
    parts += [_failures(results, systems), _settings(results, systems)]
    text = "\n\n".join("\n".join(lines).strip() for part in parts if (lines := list(part)))
    (folder / "RESULTS.md").write_text(text + "\n", encoding="utf-8")


def _head(results: Results) -> Iterator[str]:
    place = results.place
    yield "# Howdah and its rivals"
    yield ""
    yield f"Measured {results.began} by `scripts/bench`: {_rounds(results)}, taken in turn on one server."
    yield "[README.md](README.md) explains what is measured and how each rival is configured;"
    yield "[results.json](results.json) has every figure."
    yield ""
    yield f"- {place.get('cores', '?')} cores, {place.get('python', '?')}, uvloop {place.get('uvloop') or 'no'}"
    settings = ", ".join(f"{name} {value}" for name, value in place.get("settings", {}).items())
    yield f"- PostgreSQL {place.get('postgresql', '?')}, {settings}"
    plain = results.figure(ceiling.NAME, ceiling.NAME, "one")
    if plain:
        yield f"- {ceiling.SCENARIO.about}: {_cell(plain)} commits/s"
    later = "".join(f"; resumed {each}" for each in results.resumed)
    yield f"- {sum(run.seconds for run in results.runs) / 60:.0f} minutes of runs{later}"
    if results.scale != 1:
        yield f"- **only {results.scale:g} of the jobs: a trial, no result**"
    if place.get("busy"):
        yield f"- **the machine was busy before the start (load {place['load']:.1f}): an idle one is faster**"


def _rounds(results: Results) -> str:
    return "one round" if results.rounds == 1 else f"medians of {results.rounds} rounds (lowest to highest in brackets)"


def _targets(results: Results, systems: Mapping[str, System]) -> Iterator[str]:
    yield "## Targets"
    yield ""
    yield "| | target | measured | compared with | reached |"
    yield "|---|---|---|---|---|"
    missed = []
    for target in TARGETS:
        reached = target.measure(results, systems)
        sign = f"below {target.wanted:g}{target.unit}" if target.most else f"{target.wanted:g}x"
        if reached is None:
            yield f"| {target.title} | {sign} | {NONE} | {NONE} | not measured |"
            continue
        value = f"{number(reached.value)}{target.unit}" if target.most else f"{reached.value:.2f}x"
        yes = "yes" if target.says(reached.value) else "**no**"
        yield f"| {target.title} | {sign} | {value} | {reached.beside} | {yes} |"
        if not target.says(reached.value):
            missed.append(
                f"- **{target.title}**: {value} instead of {sign}, compared with {reached.beside}."
                f" {target.limits}".rstrip()
            )
    if missed:
        yield ""
        yield "Not reached:"
        yield ""
        yield from missed


def _plots(drawn: Mapping[str, str]) -> Iterator[str]:
    for file, title in drawn.items():
        yield f"![{title}](plots/{file})"


def _scenario(results: Results, systems: Mapping[str, System], scenario: Scenario) -> Iterator[str]:
    measured = [system for system in systems.values() if _any(results, scenario, system)]
    if not measured:
        return
    yield f"## {scenario.name}: {scenario.about}"
    yield ""
    shown = quantities(results, scenario.name)
    for names in batched(shown, COLUMNS):
        yield _row("", *(f"{shown[name].title}, {shown[name].unit}" for name in names))
        yield _row(*["---"] * (len(names) + 1))
        for system in measured:
            yield _row(system.title, *(_cell(results.figure(scenario.name, system.name, name)) for name in names))
        yield ""
    others = [system for system in measured if system.name != OURS]
    if others and _any(results, scenario, systems[OURS]):
        yield "How many times better Howdah is (below 1: worse): ratio of medians, in brackets ratios of single rounds:"
        yield ""
        for names in batched(shown, COLUMNS):
            yield _row("", *(shown[name].title for name in names))
            yield _row(*["---"] * (len(names) + 1))
            for system in others:
                cells = (_ratio(results, scenario.name, system.name, name, shown[name]) for name in names)
                yield _row(system.title, *cells)
            yield ""


def batched(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Return parts of at most ``size`` names.

    >>> list(batched("abc", 2))
    [['a', 'b'], ['c']]
    """
    left = list(names)
    for first in range(0, len(left), size):
        yield left[first : first + size]


def _any(results: Results, scenario: Scenario, system: System) -> bool:
    return any(results.figure(scenario.name, system.name, name) for name in quantities(results, scenario.name))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return NONE
    spread = f" ({number(figure.low)}–{number(figure.high)})" if len(figure.rounds) > 1 else ""
    return number(figure.median) + spread


def _ratio(results: Results, scenario: str, system: str, name: str, quantity: Quantity) -> str:
    ours, theirs = results.figure(scenario, OURS, name), results.figure(scenario, system, name)
    if ours is None or theirs is None:
        return NONE
    pairs = list(zip(ours.rounds, theirs.rounds, strict=False))
    single = [quantity.ratio(*pair) for pair in pairs]
    spread = f" ({min(single):.2f}–{max(single):.2f})" if len(single) > 1 else ""
    return f"{quantity.ratio(ours.median, theirs.median):.2f}x{spread}"


def _failures(results: Results, systems: Mapping[str, System]) -> Iterator[str]:
    failed = [(f"{systems[name].title}, all", reason) for name, reason in results.missing.items() if name in systems]
    for run in results.runs:
        if not (run.error or run.left_out):
            continue
        title = systems[run.system].title if run.system in systems else run.system
        failed.append((f"{title}, {run.scenario}, round {run.round}", run.error or run.left_out or ""))
    if failed:
        yield "## Not measured"
        yield ""
        yield _row("", "reason")
        yield _row("---", "---")
        for what, reason in failed:
            yield _row(what, " ".join(reason.split()).replace("|", "\\|")[:300])


def _settings(results: Results, systems: Mapping[str, System]) -> Iterator[str]:
    yield "## Versions and settings"
    yield ""
    yield _row("", "versions", "settings", "can insert and complete in one commit")
    yield _row(*["---"] * 4)
    for name, reported in results.systems.items():
        if name not in systems:
            continue
        runtime = f"Python {reported['python']}" if "python" in reported else f"Node {reported['node']}"
        versions = ", ".join(f"{package} {version}" for package, version in reported["versions"].items())
        one = "yes" if "transact" in systems[name].kinds else "no"
        yield _row(systems[name].title, f"{versions}; {runtime}", systems[name].settings, one)
