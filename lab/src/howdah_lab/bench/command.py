"""`howdah bench`: measures Howdah on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

from howdah.cli.node import run_fast
from howdah.cli.output import INCOMPLETE, dump, finish, one_line, printable, show
from howdah.cli.parameters import as_json
from howdah.observe import logs
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from howdah_lab.bench.app import SCHEMA
from howdah_lab.bench.bench_schema import BenchSchema
from howdah_lab.bench.figure import Environment, Figure, Result, look_around
from howdah_lab.bench.plan import OwnScenario
from howdah_lab.bench.progress import Steps
from howdah_lab.bench.run import SCENARIOS, run

DURABLE = {"fsync": "on", "synchronous_commit": "on"}
USUAL = [name for name, scenario in SCENARIOS.items() if not scenario.alone]


@click.command()
@click.option(
    "--jobs", type=click.IntRange(100), default=50_000, show_default=True, help="Number of jobs in one round of drain."
)
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Number of rounds of every scenario."
)
@click.option("--processes", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of nodes.")
@click.option(
    "--scenario",
    "names",
    type=click.Choice(list(SCENARIOS)),
    multiple=True,
    help="Measure only this scenario; repeatable.  [default: all but dashboard]",
)
@click.option("--dsn", metavar="DSN", help="Use this database instead of a PostgreSQL of its own.")
@click.option(
    "--schema", default=SCHEMA, show_default=True, metavar="NAME", help="Schema to create, and to drop at the end."
)
@as_json
def bench(
    jobs: int, rounds: int, processes: int, names: tuple[str, ...], dsn: str | None, schema: str, as_json: bool
) -> None:
    """Measure the engine on this machine.

    Starts a PostgreSQL in a temporary folder, with fsync on, or uses the database given by --dsn (environment
    variables are ignored, since a benchmark is a heavy load). The nodes are `howdah worker` processes as you would run
    them. A clock stops when the last outcome is committed, and every round is checked in the tables: each job
    done exactly once. Exit code 1 when a scenario failed.
    """
    logs.configure("warning", json=False)
    scenarios = [SCENARIOS[name] for name in dict.fromkeys(names or USUAL)]
    if dsn is not None:
        measured = run_fast(_measure(Database(dsn, schema=schema), scenarios, jobs, rounds, processes))
    else:
        click.echo("starting PostgreSQL in a temporary folder", err=True)
        with embedded.start(settings=DURABLE) as server:
            measured = run_fast(_measure(Database(server.dsn, schema=schema), scenarios, jobs, rounds, processes))
    place, results = measured
    if as_json:
        dump({"place": place, "rounds": rounds, "processes": processes, "scenarios": results})
    else:
        _print(place, results, rounds, processes)
    finish(INCOMPLETE if any(result.error for result in results) else 0)


async def _measure(
    database: Database, scenarios: Sequence[OwnScenario], jobs: int, rounds: int, processes: int
) -> tuple[Environment, list[Result]]:
    async with BenchSchema(database) as schema:
        place = await look_around(database, schema.conn)
        with Steps(scenarios, rounds) as steps:
            results = await run(
                schema,
                scenarios,
                jobs=jobs,
                rounds=rounds,
                processes=processes,
                begin=steps.begin,
                tick=steps.tick,
            )
    return place, results


class _Row(NamedTuple):
    result: Result
    figure: Figure


def _print(place: Environment, results: Sequence[Result], rounds: int, processes: int) -> None:
    click.echo(
        f"howdah {place.howdah}, {place.python}, uvloop {place.uvloop or 'no'},"
        f" opentelemetry {place.opentelemetry or 'no'}, {place.cores} cores, {_nodes(processes)}"
    )
    settings = ", ".join(f"{name} {value}" for name, value in place.settings.items())
    click.echo(f"PostgreSQL {place.postgresql} ({place.server}), {settings}")
    if not place.durable:
        click.echo("fsync or synchronous_commit is off: these figures are not those of durable jobs")
    if place.busy:
        click.echo(
            f"the machine was busy before the start (load {place.load:.1f} on {place.cores} cores):"
            " it can do better than this"
        )
    click.echo(f"medians of {rounds} rounds; every job checked in the tables\n")
    rows = [_Row(result, figure) for result in results for figure in result.figures]
    show(rows, COLUMNS, empty="no figures")
    for result in results:
        if result.error:
            click.echo(f"\n{result.scenario} failed: {printable(one_line(result.error))}")
        if result.left_out:
            click.echo(f"\n{result.scenario} was left out: {printable(one_line(result.left_out))}")


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _number(value: float) -> float:
    """Round a figure to its significant digits.

    >>> _number(123456.7), _number(17.31)
    (123457, 17.31)
    """
    return round(value) if value >= 1000 else value


def _spread(value: float, figure: Figure) -> float | None:
    return _number(value) if len(figure.rounds) > 1 else None


COLUMNS = {
    "scenario": lambda row: row.result.scenario,
    "jobs": lambda row: row.result.jobs,
    "figure": lambda row: row.figure.name,
    "median": lambda row: _number(row.figure.median),
    "low": lambda row: _spread(row.figure.low, row.figure),
    "high": lambda row: _spread(row.figure.high, row.figure),
    "unit": lambda row: row.figure.unit,
}
