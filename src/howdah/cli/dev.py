"""`howdah dev`: your app with a PostgreSQL of its own, started anew whenever its code changes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from howdah.app import Howdah
from howdah.cli.common import DURATION, Target, finish, names_a_database, targeted
from howdah.cli.node import reach
from howdah.cli.worker import supervise
from howdah.config import DEV_NOTE, load_app
from howdah.errors import ConfigError, DatabaseUnreachable, SchemaError
from howdah.observe import logs
from howdah.pg import embedded, migrate
from howdah.pg.database import Database, hide_password
from howdah.sources import Sources
from howdah.supervisor import Supervisor

FOLDER = Path(".howdah")
PATIENCE = 30.0
WORKER = (sys.executable, "-m", "howdah", "worker")


@click.command()
@targeted
@click.option("-q", "--queues", metavar="NAME[:MOST],…", help="Queues to serve.  [default: all]")
@click.option("-c", "--concurrency", type=int, metavar="N", help="Jobs at once.  [default: 50]")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz.")
@click.option("--grace", type=DURATION, default="5s", show_default=True, help="For running jobs when code changes.")
@click.option("--show-dsn", is_flag=True, help="Print the DSN with its password.")
def dev(target: Target, show_dsn: bool, **options: Any) -> None:
    """Run your app with a PostgreSQL of its own, kept in ./.howdah/pg.

    Migrates, runs a node, and starts it anew when a Python file under this folder changes. A database named
    by a flag, the environment, howdah.toml or the app itself is used instead.
    """
    settings = target.settings()
    if settings.app is None:
        raise ConfigError("no app is named; give -a module:attribute, or set HOWDAH_APP")
    logs.configure(settings.log_level or "info", settings.log_json)
    app = load_app(settings.app)
    with _database(app, target.dsn or settings.dsn, settings.schema) as place:
        database = app.database
        asyncio.run(_prepare(database))
        click.echo(f"database  {database.dsn if show_dsn else place}, schema {database.schema}")
        click.echo(f"enqueue   howdah enqueue -a {settings.app} KIND …   (in this folder, in another terminal)")
        click.echo("stop      Ctrl-C")
        command = [*WORKER, "-a", settings.app, *_flags(target, options)]
        environment = {**os.environ, "HOWDAH_DSN": database.dsn, "HOWDAH_SCHEMA": database.schema}
        finish(asyncio.run(_work(command, environment)))


@contextmanager
def _database(app: Howdah, dsn: str | None, schema: str | None) -> Iterator[str]:
    """Connect the app to its database for as long as the block lasts; gives the words to show for it."""
    if dsn in (None, _noted()) and not names_a_database(app):
        with _embedded() as server:
            app.connect_to(server.dsn, schema)
            yield f"PostgreSQL {server.major} in {FOLDER / 'pg'}, its DSN in {DEV_NOTE}"
    else:
        app.connect_to(dsn or app.database.dsn, schema)
        yield hide_password(app.database.dsn)


@contextmanager
def _embedded() -> Iterator[embedded.Server]:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    server = embedded.start(FOLDER / "pg")
    try:
        DEV_NOTE.unlink(missing_ok=True)
        with open(os.open(DEV_NOTE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as note:
            note.write(server.dsn)
        yield server
    finally:
        server.stop()
        if not asyncio.run(_answers(Database(server.dsn))):  # else somebody in this folder still uses it
            DEV_NOTE.unlink(missing_ok=True)


def _noted() -> str | None:
    try:
        return DEV_NOTE.read_text()
    except OSError:
        return None


def _flags(target: Target, options: Mapping[str, Any]) -> list[str]:
    """What was said about the node, to be said again to the child."""
    said = {"config": target.config_file, "dsn": target.dsn, **options}
    return [word for name, value in said.items() if value is not None for word in (f"--{name}", str(value))]


async def _answers(database: Database) -> bool:
    try:
        (await database.connect("dev")).terminate()
    except DatabaseUnreachable:
        return False
    return True


async def _prepare(database: Database) -> None:
    try:
        await reach(database, PATIENCE, asyncio.Event())
    except SchemaError:
        await migrate.migrate(database)


async def _work(command: list[str], environment: dict[str, str]) -> int:
    return await supervise(Supervisor([command], environment=environment, sources=Sources(Path.cwd())))
