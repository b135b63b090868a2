"""`howdah migrate`: migrate the schema to the version of this release."""

from __future__ import annotations

import click

from howdah.cli.common import Target, run, targeted
from howdah.postgres import migrate as migration


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
    run({"plan": plan, "sql": script, "check": check, None: apply}[only](target))


async def plan(target: Target) -> None:
    """List the migrations that would run."""
    steps = await migration.plan(target.database())
    for step in steps:
        click.echo(f"{step.number:04} {step.name}{_compatible(step)}")
    if not steps:
        click.echo("nothing to do")


async def script(target: Target) -> None:
    """Print the SQL that would run."""
    database = target.database()
    steps = await migration.plan(database)
    click.echo(migration.script(database, steps) if steps else "-- nothing to do")


async def check(target: Target) -> None:
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
