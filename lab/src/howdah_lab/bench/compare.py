"""The command line of scripts/bench."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from howdah.errors import HowdahError
from howdah_lab.bench.compare_progress import Bar
from howdah_lab.bench.environment import is_prepared
from howdah_lab.bench.report import markdown
from howdah_lab.bench.results import Results
from howdah_lab.bench.runner import SCENARIOS, Benchmark, begin, now, plan
from howdah_lab.bench.system import OURS, System, load_all

FOLDER = Path("benchmarks")
INCOMPLETE = 1
SYSTEMS = load_all()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only",
    type=click.Choice(list(SYSTEMS)),
    multiple=True,
    help="Measure only this rival beside Howdah, or Howdah alone; repeatable.  [default: all]",
)
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(list(SCENARIOS)),
    multiple=True,
    help="Measure only this scenario; repeatable.  [default: all]",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Number of rounds of every scenario."
)
@click.option(
    "--scale", type=click.FloatRange(0.001, 1), default=1.0, show_default=True, help="Fraction of the jobs to use."
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    help="Folder for RESULTS.md, results.json and plots.  [default: benchmarks]",
)
@click.option("--resume", is_flag=True, help="Continue from results.json; measure only what is missing.")
@click.option("--offline", is_flag=True, help="Leave out rivals whose environments are not installed yet.")
@click.option("--list", "listing", is_flag=True, help="List scenarios and rivals.")
@click.option("--report", "reporting", is_flag=True, help="Measure nothing; write RESULTS.md from results.json again.")
def main(
    only: tuple[str, ...],
    scenarios: tuple[str, ...],
    rounds: int,
    scale: float,
    output: Path,
    resume: bool,
    offline: bool,
    listing: bool,
    reporting: bool,
) -> None:
    """Measure Howdah beside its rivals, in turn, on one PostgreSQL, and write benchmarks/RESULTS.md.

    Rivals are installed into environments of their own, in ~/.cache/howdah/bench. Results are kept when
    it is interrupted; --resume continues. Exit code 1 when something could not be measured.
    """
    if listing:
        return show()
    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.json"
    results = Results.load(file) if (resume or reporting) and file.exists() else begin(scale, rounds)
    if reporting:
        return markdown.write(results, SYSTEMS, output)
    if (results.scale, results.rounds) != (scale, rounds):
        raise click.UsageError(
            f"{file} was measured with --scale {results.scale:g} --rounds {results.rounds};"
            " give the same options to continue, or leave out --resume to start again"
        )
    if resume and results.runs:
        results.resumed.append(f"{now()} with {', '.join(scenarios or ['everything'])}")
    rivals = [rival for name, rival in SYSTEMS.items() if name == OURS or not only or name in only]
    if offline:
        rivals = [rival for rival in rivals if is_prepared(rival)]
    try:
        measure(results, rivals, list(scenarios), output)
    finally:
        if results.runs:
            markdown.write(results, SYSTEMS, output)
            click.echo(f"wrote {output / 'RESULTS.md'}")
    raise SystemExit(INCOMPLETE if results.missing or results.errors() else 0)


def measure(results: Results, rivals: list[System], names: list[str], output: Path) -> None:
    """ScenarioRun the measurements with a progress bar."""
    chosen = [SCENARIOS[name] for name in dict.fromkeys(names or SCENARIOS)]
    with Bar(len(plan(rivals, chosen, results.rounds))) as bar:
        benchmark = Benchmark(results, lambda: results.save(output / "results.json"), bar.say)
        try:
            asyncio.run(benchmark.run(rivals, chosen, bar.tick))
        except KeyboardInterrupt:
            raise SystemExit("interrupted; --resume continues") from None
        except HowdahError as error:
            raise SystemExit(f"bench: {error}") from None


def show() -> None:
    """List scenarios and rivals."""
    click.echo("scenarios:")
    for scenario in SCENARIOS.values():
        click.echo(f"  {scenario.name:<10}{scenario.about}")
    click.echo("rivals:")
    for rival in SYSTEMS.values():
        ready = "ready" if is_prepared(rival) else "to be installed"
        also = ", also for decay and growth" if rival.close else ""
        click.echo(f"  {rival.name:<17}{rival.title}, {rival.server}, {ready}{also}")


if __name__ == "__main__":
    main(prog_name="scripts/bench")
