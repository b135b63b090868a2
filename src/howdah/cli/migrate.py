"""`howdah migrate`: bring the schema to the version this code needs."""

from __future__ import annotations

import click

from howdah.cli.common import Target, run, targeted
from howdah.pg import migrate as migration


@click.command()
@click.option("--plan", "only", flag_value="plan", help="Only say what would run.")
@click.option("--sql", "only", flag_value="sql", help="Only print the SQL that would run.")
@click.option("--check", "only", flag_value="check", help="Only check: exit 4 unless the schema fits.")
@targeted
def migrate(target: Target, only: str | None) -> None:
    """Bring the schema to the version this code needs.

    Safe to run from many places at once. Everything runs in one transaction.

    \b
    howdah migrate --dsn postgresql:///app
    howdah migrate --sql > howdah.sql
    """
    run({"plan": plan, "sql": script, "check": check, None: apply}[only](target))


async def plan(target: Target) -> None:
    """Say what would run."""
    steps = await migration.plan(target.database())
    for step in steps:
        click.echo(f"{step.number:04} {step.name}")
    if not steps:
        click.echo("nothing to do")


async def script(target: Target) -> None:
    """Print what would run."""
    database = target.database()
    steps = await migration.plan(database)
    click.echo(migration.script(database, steps) if steps else "-- nothing to do")


async def check(target: Target) -> None:
    """Refuse unless the schema is the one this code needs."""
    database = target.database()
    await migration.check(database)
    click.echo(f"schema {database.schema!r} is at version {migration.needed()}, as this code needs")


async def apply(target: Target) -> None:
    """Run what is still to run."""
    database = target.database()
    for step in await migration.migrate(database):
        click.echo(f"{step.number:04} {step.name}: done")
    click.echo(f"schema {database.schema!r} is at version {migration.needed()}")
