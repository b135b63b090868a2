"""The database and the application that a command uses, and the operator who runs it."""

from __future__ import annotations

import asyncio
import functools
import getpass
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from howdah import config
from howdah.app import Howdah
from howdah.audit import Actor, acting_as
from howdah.cli.parameters import flags_of, given_flags
from howdah.errors import ConfigError
from howdah.events.log import Log
from howdah.jobs.admin import Admin
from howdah.maintenance.pruner import Retention
from howdah.observe import logs
from howdah.options import Given
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.redact import Redact
from howdah.settings import AppOptions, LogOptions
from howdah.table.options import TableOptions


def user() -> str | None:
    """Return the user name of the operator."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def person() -> Actor:
    """Return the operator for the audit log."""
    host = socket.gethostname()
    return Actor(f"{user() or 'unknown'}@{host}", "cli", host)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The database and app of a command, from its flags, the environment and the settings file."""

    flags: Mapping[str, Given] = field(default_factory=dict)
    """The options that were given as flags, by key."""
    config_file: str | None = None

    def settings(self) -> config.Settings:
        """Return the settings, flags included."""
        return config.load(self.config_file).over(self.flags)

    def app(self) -> Howdah:
        """Return the application, connected to the database that was given."""
        settings = self.settings()
        app = config.load_app(app_name(settings))
        app.retention = settings.of(Retention, app.retention)
        app.webhooks.put(settings.webhooks)
        app.redact = settings.redaction(app.redact.hook)
        app.connect_to(self.dsn(app), settings.of(AppOptions).schema)
        return app

    def dsn(self, app: Howdah) -> str:
        """Return the DSN of an application: that of the flag, else that of its own code, else that of the settings."""
        if "dsn" not in self.flags and names_a_database(app):
            return app.database.dsn
        return self.settings().database().dsn

    def database(self) -> Database:
        """Return the database: that of the flag, else that of the app if there is one, else that of the settings."""
        settings = self.settings()
        if "dsn" not in self.flags and settings.app is not None:
            return self.app().database
        return settings.database()

    def retention(self) -> Retention:
        """Return how long finished jobs are kept, by the settings and by the app if there is one."""
        settings = self.settings()
        return settings.of(Retention, None if settings.app is None else config.load_app(settings.app).retention)

    def redact(self) -> Redact:
        """Return the masking of values in output, by the settings and by the app if there is one."""
        settings = self.settings()
        hook = None if settings.app is None else config.load_app(settings.app).redact.hook
        return settings.redaction(hook)

    def tables(self) -> list[TableOptions]:
        """Return the options of the tables of the app; none if there is no app."""
        settings = self.settings()
        return [table.options for table in config.load_app(settings.app).tables.values()] if settings.app else []

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """Open the admin of jobs; raises :class:`SchemaError` for an unknown schema."""
        database = self.database()
        await migrate.check(database)
        pool = await database.pool(2)

        async def opened() -> Any:
            return pool

        try:
            with acting_as(person()):
                yield Admin(database, opened)
        finally:
            pool.terminate()

    @asynccontextmanager
    async def log(self, app: Howdah | None = None) -> AsyncIterator[Log]:
        """Open the event log and its admin; with ``app``, with its event types.

        Refuses a schema this code does not know.
        """
        if app is None:
            database = self.database()
            app = Howdah(database.dsn, schema=database.schema)
        await migrate.check(app.database)
        try:
            with acting_as(person()):
                yield app.log
        finally:
            await app.close()


def app_name(settings: config.Settings) -> str:
    """Return the name of the application, ``module:attribute``."""
    if settings.app is None:
        raise ConfigError(
            f'no app is named; give -a module:attribute, set HOWDAH_APP, or write app = "…" into {config.FILE}'
        )
    return settings.app


def names_a_database(app: Howdah) -> bool:
    """Return whether the app knows its database by its code or the environment."""
    try:
        return bool(app.database)
    except ConfigError:
        return False


def targeted(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--dsn`, `--schema`, `-a` and `--config`, and pass it the :class:`Target` first."""

    @flags_of(AppOptions)
    @configured
    @functools.wraps(command)
    def wrapped(*args: Any, config_file: str | None, **options: Any) -> T:
        return command(Target(given_flags(click.get_current_context()), config_file), *args, **options)

    return wrapped


configured = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Settings file.  [env: HOWDAH_CONFIG; default: the nearest howdah.toml upwards]",
)


def configure_logs(settings: config.Settings) -> None:
    """Configure logging from the settings."""
    options = settings.of(LogOptions)
    logs.configure(options.log_level, options.log_json)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(main)
