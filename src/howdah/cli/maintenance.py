"""`howdah migrate` and `howdah prune`: maintain the schema and delete old jobs."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace

import click

from howdah.audit import acting_as
from howdah.cli.output import age, dump
from howdah.cli.parameters import as_json, flags_of
from howdah.cli.selection import confirm
from howdah.cli.target import Target, person, run, targeted
from howdah.maintenance.pruner import Pruned, Pruner, Retention
from howdah.postgres import migrate as migration
from howdah.postgres.database import Database


@click.command()
@click.option("--plan", "only", flag_value="plan", help="Only list the migrations that would run.")
@click.option("--sql", "only", flag_value="sql", help="Only print the SQL that would run.")
@click.option("--check", "only", flag_value="check", help="Only check: exit 4 unless the schema has the right version.")
@targeted
def migrate(target: Target, only: str | None) -> None:
    """Migrate the schema to the version of this release.

    Safe to run from many places at once. Everything runs in one transaction.

    \b
    howdah migrate --dsn postgresql:///app
    howdah migrate --sql > howdah.sql
    """
    run({"plan": print_plan, "sql": print_sql, "check": check_schema, None: apply}[only](target))


async def print_plan(target: Target) -> None:
    """List the migrations that would run."""
    steps = await migration.plan(target.database())
    for step in steps:
        click.echo(f"{step.number:04} {step.name}{_compatible(step)}")
    if not steps:
        click.echo("nothing to do")


async def print_sql(target: Target) -> None:
    """Print the SQL that would run."""
    database = target.database()
    steps = await migration.plan(database)
    click.echo(migration.script(database, steps) if steps else "-- nothing to do")


async def check_schema(target: Target) -> None:
    """Raise :class:`SchemaError` unless this code works on the schema."""
    database = target.database()
    state = await migration.state(database)
    migration.refuse(database, state)
    if state.newer:
        click.echo(_newer(database.schema, state))
    else:
        click.echo(f"schema {database.schema!r} is at version {migration.needed()}, as this code needs")


async def apply(target: Target) -> None:
    """Run the pending migrations."""
    database = target.database()
    for step in await migration.migrate(database):
        click.echo(f"{step.number:04} {step.name}: done{_compatible(step)}")
    state = await migration.state(database)
    if state.newer:
        click.echo(_newer(database.schema, state))
    else:
        click.echo(f"schema {database.schema!r} is at version {state.version}")


def _compatible(step: migration.Migration) -> str:
    """Describe which older code still works after a step, if any does."""
    return f" (works with code from version {step.works_from} on)" if step.works_from < step.number else ""


def _newer(schema: str, state: migration.SchemaState) -> str:
    return (
        f"schema {schema!r} is at version {state.version} and works with code from version {state.works_from} on;"
        f" this code is for version {migration.needed()}"
    )


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
        confirm(f"delete {describe_retention(retention)}", yes)
    with spinner(), acting_as(person()):
        pruned = run(delete_old(target.database(), retention))
    if as_json:
        dump({key: value for key, value in asdict(pruned).items() if value is not None})
    else:
        click.echo(f"pruned {pruned.jobs:,} jobs, {pruned.partitions} whole partitions among them")
    if pruned.held_by:
        click.echo(f"partitions could not be dropped: {pruned.held_by} holds their tables", err=True)


def describe_retention(retention: Retention) -> str:
    """Return what would be deleted.

    >>> describe_retention(Retention(done=0, failed=86400))
    'every done job, and every failed and cancelled job older than 1d00h'
    """

    def older(seconds: float) -> str:
        return f" older than {age(seconds)}" if seconds else ""

    return f"every done job{older(retention.done)}, and every failed and cancelled job{older(retention.failed)}"


async def delete_old(database: Database, retention: Retention) -> Pruned:
    """Prune until nothing is past its retention."""
    await migration.check(database)
    return await Pruner(database, retention, audited=True).prune()


def spinner() -> AbstractContextManager[object]:
    """Show a spinner on a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("pruning")
