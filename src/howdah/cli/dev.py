"""`howdah dev`: your app with a PostgreSQL of its own, started anew whenever its code changes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from howdah.app import Howdah
from howdah.cli.common import DURATION, Target, finish, names_a_database, targeted
from howdah.cli.node import reach
from howdah.cli.worker import supervise
from howdah.config import DEV_NOTE, load_app
from howdah.errors import ConfigError, DatabaseUnreachable, SchemaError
from howdah.fleet.window import address_of, browse, take_port
from howdah.observe import logs
from howdah.pg import embedded, migrate
from howdah.pg.database import Database, hide_password
from howdah.sources import Sources
from howdah.supervisor import Supervisor

FOLDER = Path(".howdah")
PATIENCE = 30.0
LOOK_EVERY = 0.1
WORKER = (sys.executable, "-m", "howdah", "worker")
DASHBOARD = (sys.executable, "-m", "howdah.cli.window")


@click.command()
@targeted
@click.option("-q", "--queues", metavar="NAME[:MOST],…", help="Queues to serve.  [default: all]")
@click.option("-c", "--concurrency", type=int, metavar="N", help="Jobs at once.  [default: 50]")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz.")
@click.option("--grace", type=DURATION, default="5s", show_default=True, help="For running jobs when code changes.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Of the dashboard.  [default: 8080, or any]")
@click.option("--dashboard/--no-dashboard", default=True, help="Serve it to this machine.  [default: with]")
@click.option("--open", "show", is_flag=True, help="Show the dashboard in a browser.")
@click.option("--show-dsn", is_flag=True, help="Print the DSN with its password.")
def dev(target: Target, port: int | None, dashboard: bool, show: bool, show_dsn: bool, **options: Any) -> None:
    """Run your app with a PostgreSQL of its own, kept in ./.howdah/pg.

    Migrates, runs a node and the dashboard, and starts them anew when a Python file under this folder changes. A
    database named by a flag, the environment, howdah.toml or the app itself is used instead.
    """
    settings = target.settings()
    if settings.app is None:
        raise ConfigError("no app is named; give -a module:attribute, or set HOWDAH_APP")
    logs.configure(settings.log_level or "info", settings.log_json)
    app = load_app(settings.app)
    with _database(app, target.dsn or settings.dsn, settings.schema) as place:
        database = app.database
        asyncio.run(_prepare(database))
        commands = [[*WORKER, "-a", settings.app, *_flags(target, options)]]
        if dashboard:
            chosen, address = _free(port)
            commands.append([*DASHBOARD, "-a", settings.app, *_flags(target, {"port": chosen})])
            click.echo(f"dashboard {click.style(address, bold=True)}")
        click.echo(f"database  {database.dsn if show_dsn else place}, schema {database.schema}")
        click.echo(f"enqueue   howdah enqueue -a {settings.app} KIND …   (in this folder, in another terminal)")
        click.echo("stop      Ctrl-C")
        environment = {**os.environ, "HOWDAH_DSN": database.dsn, "HOWDAH_SCHEMA": database.schema}
        finish(asyncio.run(_work(commands, environment, address if dashboard and show else None)))


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


def _free(port: int | None) -> tuple[int, str]:
    """The port of the dashboard: whoever is started anew takes the same one."""
    sockets = take_port(port)
    try:
        return sockets[0].getsockname()[1], address_of(sockets)
    finally:
        for each in sockets:
            each.close()


async def _work(commands: list[list[str]], environment: dict[str, str], address: str | None) -> int:
    looking = asyncio.create_task(_show(address)) if address else None
    try:
        return await supervise(Supervisor(commands, environment=environment, sources=Sources(Path.cwd())))
    finally:
        if looking:
            looking.cancel()


async def _show(address: str) -> None:
    """Open a browser as soon as there is something to see."""
    url = urlsplit(address)
    while True:
        try:
            _, writer = await asyncio.open_connection(url.hostname, url.port)
        except OSError:
            await asyncio.sleep(LOOK_EVERY)
        else:
            writer.close()
            browse(address)
            return
