"""Report: RESULTS.md with its plots, written from the results alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from howdah_lab.bench.figure import Figure
from howdah_lab.bench.report import charts
from howdah_lab.bench.report.svg import number
from howdah_lab.bench.report.targets import TARGETS
from howdah_lab.bench.results import Results
from howdah_lab.bench.runner import SCENARIOS
from howdah_lab.bench.scenario import Quantity, Scenario
from howdah_lab.bench.scenarios import ceiling
from howdah_lab.bench.system import OURS, System

NONE = "—"
COLUMNS = 5
"""Of a table at most: a wider one is hard to read."""


def write(results: Results, rivals: Mapping[str, System], folder: Path) -> None:
    """Write it into a folder."""
    drawn = charts.draw(results, rivals, folder / "plots")
    parts = [_head(results), _targets(results, rivals), _plots(drawn)]
    parts += [_scenario(results, rivals, scenario) for scenario in SCENARIOS.values()]
    parts += [_failures(results, rivals), _settings(results, rivals)]
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
        yield f"- {ceiling.ABOUT}: {_cell(plain)} commits/s"
    later = "".join(f"; resumed {each}" for each in results.resumed)
    yield f"- {sum(run.seconds for run in results.runs) / 60:.0f} minutes of runs{later}"
    if results.scale != 1:
        yield f"- **only {results.scale:g} of the jobs: a trial, no result**"
    if place.get("busy"):
        yield f"- **the machine was busy before the start (load {place['load']:.1f}): an idle one is faster**"


def _rounds(results: Results) -> str:
    return "one round" if results.rounds == 1 else f"medians of {results.rounds} rounds (lowest to highest in brackets)"


def _targets(results: Results, rivals: Mapping[str, System]) -> Iterator[str]:
    yield "## Targets"
    yield ""
    yield "| | target | measured | compared with | reached |"
    yield "|---|---|---|---|---|"
    missed = []
    for target in TARGETS:
        reached = target.measure(results, rivals)
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


def _scenario(results: Results, rivals: Mapping[str, System], scenario: Scenario) -> Iterator[str]:
    measured = [rival for rival in rivals.values() if _any(results, scenario, rival)]
    if not measured:
        return
    yield f"## {scenario.name}: {scenario.about}"
    yield ""
    shown = {
        name: quantity
        for name, quantity in scenario.quantities.items()
        if any(results.figure(scenario.name, rival.name, name) for rival in measured)
    }
    for names in batched(shown, COLUMNS):
        yield _row("", *(f"{shown[name].title}, {shown[name].unit}" for name in names))
        yield _row(*["---"] * (len(names) + 1))
        for rival in measured:
            yield _row(rival.title, *(_cell(results.figure(scenario.name, rival.name, name)) for name in names))
        yield ""
    others = [rival for rival in measured if rival.name != OURS]
    if others and _any(results, scenario, rivals[OURS]):
        yield "How many times better Howdah is (below 1: worse): ratio of medians, in brackets ratios of single rounds:"
        yield ""
        for names in batched(shown, COLUMNS):
            yield _row("", *(shown[name].title for name in names))
            yield _row(*["---"] * (len(names) + 1))
            for rival in others:
                cells = (_ratio(results, scenario.name, rival.name, name, shown[name]) for name in names)
                yield _row(rival.title, *cells)
            yield ""


def batched(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """At most so many at once.

    >>> list(batched("abc", 2))
    [['a', 'b'], ['c']]
    """
    left = list(names)
    for first in range(0, len(left), size):
        yield left[first : first + size]


def _any(results: Results, scenario: Scenario, rival: System) -> bool:
    return any(results.figure(scenario.name, rival.name, name) for name in scenario.quantities)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return NONE
    spread = f" ({number(figure.low)}–{number(figure.high)})" if len(figure.rounds) > 1 else ""
    return number(figure.median) + spread


def _ratio(results: Results, scenario: str, rival: str, name: str, quantity: Quantity) -> str:
    ours, theirs = results.figure(scenario, OURS, name), results.figure(scenario, rival, name)
    if ours is None or theirs is None:
        return NONE
    pairs = list(zip(ours.rounds, theirs.rounds, strict=False))
    single = [quantity.ratio(*pair) for pair in pairs]
    spread = f" ({min(single):.2f}–{max(single):.2f})" if len(single) > 1 else ""
    return f"{quantity.ratio(ours.median, theirs.median):.2f}x{spread}"


def _failures(results: Results, rivals: Mapping[str, System]) -> Iterator[str]:
    failed = [(f"{rivals[name].title}, all", reason) for name, reason in results.missing.items() if name in rivals]
    for run in results.errors():
        title = rivals[run.rival].title if run.rival in rivals else run.rival
        failed.append((f"{title}, {run.scenario}, round {run.round}", run.error or ""))
    if failed:
        yield "## Not measured"
        yield ""
        yield _row("", "reason")
        yield _row("---", "---")
        for what, reason in failed:
            yield _row(what, " ".join(reason.split()).replace("|", "\\|")[:300])


def _settings(results: Results, rivals: Mapping[str, System]) -> Iterator[str]:
    yield "## Versions and settings"
    yield ""
    yield _row("", "versions", "settings", "can insert and complete in one commit")
    yield _row(*["---"] * 4)
    for name, said in results.rivals.items():
        if name not in rivals:
            continue
        runtime = f"Python {said['python']}" if "python" in said else f"Node {said['node']}"
        versions = ", ".join(f"{package} {version}" for package, version in said["versions"].items())
        one = "yes" if "transact" in rivals[name].kinds else "no"
        yield _row(rivals[name].title, f"{versions}; {runtime}", rivals[name].settings, one)
