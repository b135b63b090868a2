"""`howdah prune`: delete finished jobs past their time."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace

import click

from howdah.audit import acting_as
from howdah.cli.choice import confirm
from howdah.cli.common import DURATION, Target, as_json, run, targeted
from howdah.cli.output import age, dump
from howdah.cli.person import person
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.upkeep.pruner import Pruned, Pruner, Retention


@click.command()
@click.option("--done-after", type=DURATION, help="Keep done jobs this long.  [default: 14d]")
@click.option("--failed-after", type=DURATION, help="Keep failed and cancelled jobs this long.  [default: 30d]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@targeted
def prune(target: Target, done_after: float | None, failed_after: float | None, yes: bool, as_json: bool) -> None:
    """Delete finished jobs past their time. Workers do this by themselves every hour.

    Asks before it deletes jobs that the settings would keep longer; without a terminal that needs --yes.

    \b
    howdah prune --done-after 14d --failed-after 30d
    """
    kept = target.settings().keep()
    retention = replace(
        kept,
        done=kept.done if done_after is None else done_after,
        failed=kept.failed if failed_after is None else failed_after,
    )
    if retention.done < kept.done or retention.failed < kept.failed:
        confirm(f"delete {words(retention)}", yes)
    with progress(), acting_as(person()):
        pruned = run(tidy(target.database(), retention))
    if as_json:
        dump(asdict(pruned))
    else:
        click.echo(f"pruned {pruned.jobs:,} jobs, {pruned.partitions} whole partitions among them")


def words(retention: Retention) -> str:
    """What would be deleted.

    >>> words(Retention(done=0, failed=86400))
    'every done job, and every failed and cancelled job older than 1d00h'
    """

    def older(seconds: float) -> str:
        return f" older than {age(seconds)}" if seconds else ""

    return f"every done job{older(retention.done)}, and every failed and cancelled job{older(retention.failed)}"


async def tidy(database: Database, retention: Retention) -> Pruned:
    """Prune until nothing is past its time."""
    await migrate.check(database)
    return await Pruner(database, retention, noted=True).prune()


def progress() -> AbstractContextManager[object]:
    """Something that moves, on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("pruning")
