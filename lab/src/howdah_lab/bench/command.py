"""`howdah bench`: measures Howdah on this machine, alone or compared with other queues."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import click

from howdah.cli.node import run_fast
from howdah.cli.output import INCOMPLETE, dump, finish
from howdah.cli.parameters import as_json
from howdah.observe import logs
from howdah.postgres.database import Database
from howdah_lab.bench.app import SCHEMA
from howdah_lab.bench.environment import is_prepared
from howdah_lab.bench.progress import ProgressBar
from howdah_lab.bench.report import markdown, summary, table
from howdah_lab.bench.results import Results, begin, now
from howdah_lab.bench.runner import Runner, plan
from howdah_lab.bench.scenario import JOBS, Scenario
from howdah_lab.bench.scenarios import ALIASES, KNOWN, SCENARIOS
from howdah_lab.bench.server import COMPARED_VERSION, EmbeddedServer, GivenDatabase, Redis
from howdah_lab.bench.session import Workbench
from howdah_lab.bench.system import OURS, System, load_all

SYSTEMS = load_all()
FOLDER = Path("benchmarks")


@click.command()
@click.option(
    "--scenario",
    "names",
    type=click.Choice([*SCENARIOS, *ALIASES]),
    multiple=True,
    help="Measure only this scenario; repeatable. --list shows all.",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Number of rounds of every scenario."
)
@click.option("--jobs", type=click.IntRange(100), help=f"Number of jobs in one round of drain.  [default: {JOBS}]")
@click.option("--scale", type=click.FloatRange(0.001), help="Size as a fraction, instead of --jobs.  [default: 1]")
@click.option(
    "--processes", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of worker processes."
)
@click.option("--dsn", metavar="DSN", help="Use this database instead of a PostgreSQL of its own.")
@click.option(
    "--schema", default=SCHEMA, show_default=True, metavar="NAME", help="Schema to create, and to drop at the end."
)
@click.option("--compare", is_flag=True, help="Measure other queues too, in turn with Howdah, and write RESULTS.md.")
@click.option(
    "--only",
    type=click.Choice(list(SYSTEMS)),
    multiple=True,
    help="Compare only with this queue, or measure Howdah alone; repeatable.  [default: all]",
)
@click.option("--offline", is_flag=True, help="Leave out queues that are not installed yet.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for RESULTS.md, results.json and plots.  [default with --compare: benchmarks]",
)
@click.option("--resume", is_flag=True, help="Continue from results.json; measure only what is missing.")
@click.option("--report", "reporting", is_flag=True, help="Measure nothing; write RESULTS.md from results.json again.")
@click.option("--list", "listing", is_flag=True, help="List scenarios and queues.")
@as_json
def bench(
    names: tuple[str, ...],
    rounds: int,
    jobs: int | None,
    scale: float | None,
    processes: int,
    dsn: str | None,
    schema: str,
    compare: bool,
    only: tuple[str, ...],
    offline: bool,
    output: Path | None,
    resume: bool,
    reporting: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Measure the engine on this machine, alone or compared with other queues.

    Starts a PostgreSQL in a temporary folder, with fsync on, or uses the database given by --dsn (environment
    variables are ignored, since a benchmark is a heavy load). A worker is a process that runs what `howdah worker`
    runs. A clock stops when the last outcome is committed, and every round is checked in the tables: each job done
    exactly once. Other queues are installed into environments of their own, in ~/.cache/howdah/bench. Exit code 1
    when a scenario failed.
    """
    logs.configure("warning", json=False)
    if listing:
        show()
        return
    comparing = compare or bool(only)
    if comparing and dsn is not None:
        raise click.UsageError("a comparison needs a PostgreSQL of its own: leave out --dsn")
    if jobs is not None and scale is not None:
        raise click.UsageError("--jobs and --scale both set the size: leave out one of them")
    output = output or (FOLDER if comparing else None)
    if output is None and (resume or reporting):
        raise click.UsageError("--resume and --report need the folder of results.json: add --output")
    size = jobs / JOBS if jobs else scale or 1.0
    results = _open(begin(size, rounds, processes), output, resume=resume, reporting=reporting, names=names)
    if reporting:
        assert output is not None
        markdown.write(results, SYSTEMS, output)
        summary.save(results, output / "results.json")
        return
    systems = [SYSTEMS[OURS]]
    if comparing:
        systems += [rival for name, rival in SYSTEMS.items() if name != OURS and (not only or name in only)]
    if offline:
        systems = [system for system in systems if is_prepared(system)]
    try:
        run_fast(_measure(results, systems, _chosen(names, comparing), comparing, dsn, schema, output))
    finally:
        if output and results.runs:
            markdown.write(results, SYSTEMS, output)
            click.echo(f"wrote {output / 'RESULTS.md'}", err=as_json)
    if as_json:
        dump(summary.as_json(results))
    elif not comparing:
        table.write(results)
    finish(INCOMPLETE if results.missing or results.errors() else 0)


def _open(fresh: Results, output: Path | None, *, resume: bool, reporting: bool, names: Sequence[str]) -> Results:
    """Return the results to add to: those of the file, if they are continued."""
    if output is None:
        return fresh
    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.json"
    if not (resume or reporting) or not file.exists():
        return fresh
    found = summary.load(file)
    if resume and found.options != fresh.options:
        raise click.UsageError(
            f"{file} was measured with {found.options};"
            " give the same options to continue, or leave out --resume to start again"
        )
    if resume and found.runs:
        found.resumed.append(f"{now()} with {', '.join(names or ['everything'])}")
    return found


def _chosen(names: Sequence[str], comparing: bool) -> list[Scenario]:
    if not names:
        names = [name for name, each in SCENARIOS.items() if (each.compared if comparing else each.default)]
    return [SCENARIOS[name] for name in dict.fromkeys(ALIASES.get(name, name) for name in names)]


async def _measure(
    results: Results,
    systems: Sequence[System],
    scenarios: Sequence[Scenario],
    comparing: bool,
    dsn: str | None,
    schema: str,
    output: Path | None,
) -> None:
    steps = plan(systems, scenarios, results.rounds)
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(Redis())
        if dsn is None:
            click.echo("starting PostgreSQL in a temporary folder", err=True)
            server: EmbeddedServer | GivenDatabase = await stack.enter_async_context(
                EmbeddedServer(COMPARED_VERSION if comparing else None)
            )
        else:
            server = await stack.enter_async_context(GivenDatabase(Database(dsn, schema=schema)))
        bar = stack.enter_context(ProgressBar({step: KNOWN[step[0]].ticks(results.rounds) for step in steps}))
        runner = Runner(
            results,
            comparing=comparing,
            save=partial(summary.save, results, output / "results.json") if output else lambda: None,
            say=bar.say,
            begin=bar.begin,
            tick=bar.tick,
        )
        await runner.run(Workbench(server, redis, schema), systems, scenarios)


def show() -> None:
    """List scenarios and systems."""
    click.echo("scenarios:")
    for scenario in SCENARIOS.values():
        click.echo(f"  {scenario.name:<14}{scenario.about}{'' if scenario.ours_only else ', any queue'}")
    click.echo("queues:")
    for system in SYSTEMS.values():
        ready = "ready" if is_prepared(system) else "to be installed"
        also = ", also for held, history, growth and nodes" if system.close else ""
        click.echo(f"  {system.name:<17}{system.title}, {system.server}, {ready}{also}")
