"""Report on the terminal: the machine, and a table of all figures."""

from __future__ import annotations

from typing import NamedTuple

import click

from howdah.cli.output import one_line, printable, show
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.report.summary import ScenarioSummary, summarise
from howdah_lab.bench.results import Results
from howdah_lab.bench.scenarios import ceiling
from howdah_lab.bench.system import OURS


class _Row(NamedTuple):
    summary: ScenarioSummary
    figure: Figure


def write(results: Results) -> None:
    """Print the report."""
    place = results.place
    click.echo(
        f"howdah {place['howdah']}, {place['python']}, uvloop {place['uvloop'] or 'no'},"
        f" opentelemetry {place['opentelemetry'] or 'no'}, {place['cores']} cores, {_processes(results.processes)}"
    )
    settings = ", ".join(f"{name} {value}" for name, value in place["settings"].items())
    click.echo(f"PostgreSQL {place['postgresql']} ({place['server']}), {settings}")
    if not place["durable"]:
        click.echo("fsync or synchronous_commit is off: these figures are not those of durable jobs")
    if place["busy"]:
        click.echo(
            f"the machine was busy before the start (load {place['load']:.1f} on {place['cores']} cores):"
            " an idle one is faster"
        )
    rounds = "one round" if results.rounds == 1 else f"medians of {results.rounds} rounds"
    click.echo(f"{rounds}; every job checked in the tables\n")
    summaries = summarise(results)
    columns = COLUMNS
    if {summary.system for summary in summaries} <= {OURS, ceiling.NAME}:
        columns = {name: read for name, read in COLUMNS.items() if name != "system"}
    show([_Row(each, figure) for each in summaries for figure in each.figures], columns, empty="no figures")
    for summary in summaries:
        name = summary.scenario if "system" not in columns else f"{summary.scenario} of {summary.system}"
        if summary.error:
            click.echo(f"\n{name} failed: {printable(one_line(summary.error))}")
        if summary.left_out:
            click.echo(f"\n{name} was left out: {printable(one_line(summary.left_out))}")
    for system, reason in results.missing.items():
        click.echo(f"\n{system} could not be measured: {printable(one_line(reason))}")


def _processes(count: int) -> str:
    return "1 worker process" if count == 1 else f"{count} worker processes"


def _number(value: float) -> float | str:
    """Round a figure to its significant digits.

    >>> _number(123456.7), _number(17.31), _number(0.05731)
    (123457, 17.31, '0.0573')
    """
    if value >= 1000:
        return round(value)
    return value if value >= 1 else f"{value:.3g}"


def _spread(value: float, figure: Figure) -> float | str | None:
    return _number(value) if len(figure.rounds) > 1 else None


COLUMNS = {
    "scenario": lambda row: row.summary.scenario,
    "system": lambda row: row.summary.system,
    "jobs": lambda row: row.summary.jobs,
    "figure": lambda row: row.figure.name,
    "median": lambda row: _number(row.figure.median),
    "low": lambda row: _spread(row.figure.low, row.figure),
    "high": lambda row: _spread(row.figure.high, row.figure),
    "unit": lambda row: row.figure.unit,
}
