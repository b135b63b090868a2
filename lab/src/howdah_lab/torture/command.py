"""`howdah torture`: runs the fault-injection test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

from howdah.cli.output import INCOMPLETE, dump, finish, show
from howdah.cli.parameters import DURATION, as_json
from howdah.errors import ConfigError
from howdah.loops import on_signals
from howdah.observe import logs
from howdah_lab.torture import report_table
from howdah_lab.torture.all import SHORTER, missing
from howdah_lab.torture.all import torture as run
from howdah_lab.torture.faults import Fault, faults
from howdah_lab.torture.guards import GUARDS
from howdah_lab.torture.report import RunReport, all_good, lines

CHANCES = 3
"""Maximum number of runs of a negative control: a fault may miss the critical moment."""
USUAL = ("kill", "freeze", "stop", "cut", "terminate", "restart")


@click.command()
@click.option("--seconds", type=DURATION, default=60.0, help="Duration of the faults in every run.  [default: 60s]")
@click.option(
    "--fault", "names", multiple=True, metavar="NAME", help="Run only this fault; repeatable.  [default: some]"
)
@click.option("--seed", type=int, help="Seed of the random choices.  [default: random]")
@click.option(
    "--without", type=click.Choice(list(GUARDS)), help="Negative control: switch a guard off; the run must fail."
)
@click.option("--each", is_flag=True, help="Run every fault on its own, each with its negative controls.")
@click.option(
    "--workers", type=click.IntRange(1, 50), default=3, show_default=True, help="Number of nodes with a database."
)
@click.option(
    "--dsn", metavar="DSN", help="Use this server instead of one of its own; no faults of the server are run."
)
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the ledger.  [default: a temporary one]")
@click.option(
    "--table", "page", type=click.Path(path_type=Path, exists=True), help="Write the table into this Markdown page."
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Run nothing: show the reports in this folder.",
)
@click.option("--list", "listing", is_flag=True, help="List the faults and the guards.")
@as_json
def torture(
    seconds: float,
    names: tuple[str, ...],
    seed: int | None,
    without: str | None,
    each: bool,
    workers: int,
    dsn: str | None,
    folder: Path | None,
    page: Path | None,
    reports: Path | None,
    listing: bool,
    as_json: bool,
) -> None:
    """Test the guarantees on this machine: real processes under real faults.

    Starts a PostgreSQL of its own, nodes, a control plane and workers without a database, creates work on every front
    (jobs, tables, events, fleet) and injects faults for a while. Clients and handlers record, outside of the database,
    what they requested and did; at the end this is compared with the tables. Exit code 1 if anything was lost, had its
    effect twice or got stuck; with --without, if the checker did not find it.

    \b
    howdah torture
    howdah torture --fault kill --fault restart --seconds 300
    howdah torture --fault freeze --without fence
    """
    logs.configure("error", json=False)
    if listing:
        _list(as_json)
        return
    if reports is not None:
        found, left_out = report_table.read(reports), dict[str, str]()
    else:
        seed = seed if seed is not None else random.randrange(1_000_000)  # noqa: S311
        click.echo(f"seed {seed}", err=True)
        chosen = _chosen(names, each)
        if each:
            found, left_out = _each(chosen, seconds, seed, dsn, folder, workers)
        else:
            once = run(
                chosen,
                seconds=seconds,
                seed=seed,
                dsn=dsn,
                folder=folder,
                without=without,
                workers=workers,
                print_line=_print,
            )
            found, left_out = [_run(once)], {}
    if page is not None:
        report_table.write(page, found, left_out)
    _show(found, left_out, as_json)
    finish(0 if all_good(found) else INCOMPLETE)


def _show(reports: list[RunReport], left_out: dict[str, str], as_json: bool) -> None:
    if as_json:
        dump({"reports": reports, "left_out": left_out})
        return
    for report in reports:
        click.echo("\n" + "\n".join(lines(report)))
    for name, why in left_out.items():
        click.echo(f"\nnot run: {name}: {why}")


def _each(
    chosen: list[Fault], seconds: float, seed: int, dsn: str | None, folder: Path | None, workers: int
) -> tuple[list[RunReport], dict[str, str]]:
    reports: list[RunReport] = []
    left_out: dict[str, str] = {}
    for number, fault in enumerate(chosen, 1):
        if (lacking := missing(fault)) is not None:
            left_out[fault.name] = lacking
            continue
        for without in (None, *fault.controls):
            click.echo(f"{number} of {len(chosen)}: {fault.name}{f' without {without}' if without else ''}", err=True)
            length = seconds if without is None else seconds * SHORTER
            for again in range(1 if without is None else CHANCES):
                report = _run(
                    run(
                        [fault],
                        seconds=length,
                        seed=seed + again,
                        dsn=dsn,
                        folder=folder,
                        without=without,
                        workers=workers,
                    )
                )
                click.echo(f"    {lines(report)[-1]}", err=True)
                reports.append(report)
                if report.good:
                    break
    return reports, left_out


def _run(once: Coroutine[Any, Any, RunReport]) -> RunReport:
    """Run it to its end. TERM, INT or HUP cancel it, so that it ends its processes and removes its servers."""

    async def main() -> RunReport:
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            task.cancel()

        # Later signals do nothing: cleaning up is bounded.
        undo = on_signals(cancel, lambda: None)
        try:
            return await once
        finally:
            undo()

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise click.Abort from None


def _chosen(names: tuple[str, ...], each: bool) -> list[Fault]:
    known = faults()
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no fault {name!r}; known are {', '.join(known)}")
    if names:
        return [known[name] for name in dict.fromkeys(names)]
    return list(known.values()) if each else [known[name] for name in USUAL]


def _list(as_json: bool) -> None:
    found = [
        {"fault": fault.name, "while": fault.about, "controls": ", ".join(fault.controls), "lacks": missing(fault)}
        for fault in faults().values()
    ]
    if as_json:
        dump({"faults": found, "guards": GUARDS})
        return
    show(found, {name: itemgetter(name) for name in ("fault", "while", "controls", "lacks")})
    click.echo()
    for name, so in GUARDS.items():
        click.echo(f"without {name}: {so}")


def _print(what: str) -> None:
    click.echo(what, err=True)
