"""`howdah dev`: a private PostgreSQL, a node and the dashboard, restarted when a file changes."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from howdah.app import Howdah
from howdah.child_process import LISTENS, READY, follow_parent, report_to_parent
from howdah.cli.node import reach
from howdah.cli.output import explain, finish
from howdah.cli.parameters import flags_of
from howdah.cli.target import Target, app_name, configure_logs, names_a_database, targeted
from howdah.cli.worker import supervise
from howdah.config import DEV_NOTE, load_app
from howdah.control_plane.dashboard import address_of, browse, serve_dashboard, take_port
from howdah.control_plane.options import ServeOptions
from howdah.dashboard.link_key import LinkKey
from howdah.errors import DatabaseUnreachable, SchemaError
from howdah.loops import on_signals
from howdah.options import options_of
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.dsn import hide_password
from howdah.postgres.embedded import server as embedded
from howdah.settings import AppOptions, DevOptions, ProcessOptions
from howdah.supervisor import SourceFiles, Supervisor
from howdah.worker.options import WorkerOptions

FOLDER = Path(".howdah")
START_TIMEOUT = 30.0
"""Seconds to wait for the database."""
WORKER = (sys.executable, "-m", "howdah", "worker")
DASHBOARD = (sys.executable, "-m", "howdah.cli.dev")
"""The dashboard of the app alone: this module, run as a program."""
KEY = "_HOWDAH_DASHBOARD_KEY"
"""Variable with the key of the dashboard's link, which is the same after each restart."""


@click.command()
@targeted
@flags_of(WorkerOptions, only=("queues", "slots"))
@flags_of(ProcessOptions, only=("metrics",))
@flags_of(DevOptions)
def dev(target: Target) -> None:
    """Run your app on a private PostgreSQL in ./.howdah/pg.

    Migrates, runs a node and the dashboard, and starts them anew when a Python file under this folder changes. A
    database named by a flag, the environment, howdah.toml or the app itself is used instead.
    """
    settings = target.settings()
    name, options = app_name(settings), settings.of(DevOptions)
    configure_logs(settings)
    app = load_app(name)
    with _database(target, app) as description:
        database = app.database
        asyncio.run(_prepare(database))
        worker = _flags(target, "dsn", "queues", "slots", "metrics")
        commands = [[*WORKER, "-a", name, *worker, "--grace", f"{options.grace:g}"]]
        # held by this process, so that the dashboard has the same port after each restart
        sockets, key = take_port(options.port) if options.dashboard else [], LinkKey()
        if sockets:
            descriptors = [word for each in sockets for word in ("--descriptor", str(each.fileno()))]
            commands.append([*DASHBOARD, "-a", name, *_flags(target, "dsn"), *descriptors])
            link = key.link(address_of(sockets))
            click.echo(f"dashboard {click.style(link, bold=True)}")
        click.echo(f"database  {database.dsn if options.show_dsn else description}, schema {database.schema}")
        click.echo(f"enqueue   howdah enqueue -a {name} KIND …   (in this folder, in another terminal)")
        click.echo("stop      Ctrl-C")
        environment = {**os.environ, "HOWDAH_DSN": database.dsn, "HOWDAH_SCHEMA": database.schema}
        if sockets:
            environment[KEY] = key.key  # not a flag: all users of the machine can see the words of a command
        if sockets and options.open:
            browse(link)
        supervisor = Supervisor(
            commands,
            environment=environment,
            sources=SourceFiles(Path.cwd()),
            descriptors=[each.fileno() for each in sockets],
        )
        finish(asyncio.run(supervise(supervisor)))


@contextmanager
def _database(target: Target, app: Howdah) -> Iterator[str]:
    """Connect the app to its database for as long as the block lasts; yields the description of the database."""
    given = target.settings().of(AppOptions)
    if given.dsn in (None, _dsn_of_running_server()) and not names_a_database(app):
        with _embedded() as server:
            app.connect_to(server.dsn, given.schema)
            yield f"PostgreSQL {server.major} in {FOLDER / 'pg'}, its DSN in {DEV_NOTE}"
    else:
        app.connect_to(target.dsn(app), given.schema)
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
        if not asyncio.run(_answers(Database(server.dsn))):  # otherwise another process of this folder still uses it
            DEV_NOTE.unlink(missing_ok=True)


def _dsn_of_running_server() -> str | None:
    try:
        return DEV_NOTE.read_text()
    except OSError:
        return None


def _flags(target: Target, *keys: str) -> list[str]:
    """Return the flags that were given for these keys, to be passed on to a child."""
    options = [each for cls in (AppOptions, WorkerOptions, ProcessOptions) for each in options_of(cls)]
    given = [(each, target.flags[each.key].value) for each in options if each.key in keys and each.key in target.flags]
    file = ["--config", target.config_file] if target.config_file else []
    return [*file, *(word for each, value in given for word in (each.flags[-1], each.type.show(value)))]


async def _answers(database: Database) -> bool:
    try:
        (await database.connect("dev")).terminate()
    except DatabaseUnreachable:
        return False
    return True


async def _prepare(database: Database) -> None:
    try:
        await reach(database, START_TIMEOUT, asyncio.Event())
    except SchemaError:
        await migrate.migrate(database)


@click.command()
@targeted
@click.option("--descriptor", "descriptors", type=int, multiple=True, required=True)
def local_dashboard(target: Target, descriptors: tuple[int, ...]) -> None:
    """Serve the dashboard of an app on sockets that the parent process listens on, until a signal."""
    settings = target.settings()
    configure_logs(settings)
    try:
        sockets = [socket.socket(fileno=each) for each in descriptors]
        asyncio.run(_serve_dashboard(target.app(), sockets, settings.of(ServeOptions).trace_url))
    except Exception as error:
        known = explain(error)
        if known is None:
            raise
        click.echo(f"howdah: the dashboard: {known[0]}", err=True)
        sys.exit(known[1])


async def _serve_dashboard(app: Howdah, sockets: list[socket.socket], trace_url: str | None) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    on_signals(stop.set, stop.set)
    report_to_parent(LISTENS)
    follow_parent(lambda: loop.call_soon_threadsafe(stop.set))
    async with serve_dashboard(app, sockets, LinkKey(os.environ.get(KEY)), trace_url):
        report_to_parent(READY)
        await stop.wait()
    await app.close()


if __name__ == "__main__":
    local_dashboard()
