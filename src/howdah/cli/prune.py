"""`howdah prune`: delete finished jobs past their retention."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace

import click

from howdah.audit import acting_as
from howdah.cli.common import Target, as_json, person, run, targeted
from howdah.cli.flags import flags_of
from howdah.cli.output import age, dump
from howdah.cli.selection import confirm
from howdah.maintenance.pruner import Pruned, Pruner, Retention
from howdah.postgres import migrate
from howdah.postgres.database import Database


@click.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@targeted
@flags_of(Retention)
def prune(target: Target, yes: bool, as_json: bool) -> None:
    """Delete finished jobs past their retention. Workers do this automatically every hour.

    Asks before it deletes jobs that the settings would keep longer; without a terminal that needs --yes.

    \b
    howdah prune --done-after 14d --failed-after 30d
    """
    others = {key: given for key, given in target.flags.items() if not key.startswith(Retention.SECTION)}
    kept, retention = replace(target, flags=others).retention(), target.retention()
    if retention.done < kept.done or retention.failed < kept.failed:
        confirm(f"delete {words(retention)}", yes)
    with progress(), acting_as(person()):
        pruned = run(tidy(target.database(), retention))
    if as_json:
        dump(asdict(pruned))
    else:
        click.echo(f"pruned {pruned.jobs:,} jobs, {pruned.partitions} whole partitions among them")


def words(retention: Retention) -> str:
    """Return what would be deleted.

    >>> words(Retention(done=0, failed=86400))
    'every done job, and every failed and cancelled job older than 1d00h'
    """

    def older(seconds: float) -> str:
        return f" older than {age(seconds)}" if seconds else ""

    return f"every done job{older(retention.done)}, and every failed and cancelled job{older(retention.failed)}"


async def tidy(database: Database, retention: Retention) -> Pruned:
    """Prune until nothing is past its retention."""
    await migrate.check(database)
    return await Pruner(database, retention, noted=True).prune()


def progress() -> AbstractContextManager[object]:
    """A spinner on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("pruning")
