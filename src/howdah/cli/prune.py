"""`howdah prune`: delete finished jobs past their time."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace

import click

from howdah.cli.common import DURATION, Target, as_json, run, targeted
from howdah.cli.output import dump
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.upkeep.pruner import Pruned, Pruner, Retention


@click.command()
@click.option("--done-after", type=DURATION, help="Keep done jobs this long.  [default: 14d]")
@click.option("--failed-after", type=DURATION, help="Keep failed and cancelled jobs this long.  [default: 30d]")
@as_json
@targeted
def prune(target: Target, done_after: float | None, failed_after: float | None, as_json: bool) -> None:
    """Delete finished jobs past their time. Workers do this by themselves every hour.

    \b
    howdah prune --done-after 14d --failed-after 30d
    """
    kept = target.settings().keep()
    retention = replace(
        kept,
        done=kept.done if done_after is None else done_after,
        failed=kept.failed if failed_after is None else failed_after,
    )
    with progress():
        pruned = run(tidy(target.database(), retention))
    if as_json:
        dump(asdict(pruned))
    else:
        click.echo(f"pruned {pruned.jobs:,} jobs, {pruned.partitions} whole partitions among them")


async def tidy(database: Database, retention: Retention) -> Pruned:
    """Prune until nothing is past its time."""
    await migrate.check(database)
    return await Pruner(database, retention).prune()


def progress() -> AbstractContextManager[object]:
    """Something that moves, on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("pruning")
