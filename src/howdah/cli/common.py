"""What commands share: which database, which app, running coroutines, reading ids."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from howdah import config
from howdah.app import Howdah
from howdah.audit import acting_as
from howdah.cli.person import person
from howdah.errors import ConfigError
from howdah.jobs.admin import Admin
from howdah.log.log import Log
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.redact import Redact
from howdah.table.options import TableOptions

T = TypeVar("T")
LONGEST_RANGE = 100_000
LARGEST_POSITION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Target:
    """What a command acts on, by its flags, the environment and the settings file."""

    dsn: str | None = None
    schema: str | None = None
    app_spec: str | None = None
    config_file: str | None = None

    def settings(self) -> config.Settings:
        """The settings, with the flags on top."""
        said = config.load(self.config_file)
        return said.over(dsn=self.dsn, schema=self.schema, app=self.app_spec)

    def app(self) -> Howdah:
        """The application object, bound to the database the flags name."""
        settings = self.settings()
        if settings.app is None:
            raise ConfigError(
                f'no app is named; give -a module:attribute, set HOWDAH_APP, or write app = "…" into {config.FILE}'
            )
        app = config.load_app(settings.app)
        app.retention = settings.keep(app.retention)
        app.webhooks.put(settings.webhook or ())
        app.redact = settings.redaction(app.redact.hook)
        if self.dsn is not None:
            app.connect_to(self.dsn, settings.schema)
        elif names_a_database(app):
            app.connect_to(app.database.dsn, settings.schema)
        else:
            app.connect_to(settings.database().dsn, settings.schema)
        return app

    def database(self) -> Database:
        """Where the data lives: `--dsn`, else what the app says when there is one, else the settings."""
        settings = self.settings()
        if self.dsn is None and settings.app is not None:
            return self.app().database
        return settings.database()

    def redact(self) -> Redact:
        """What people are shown of jobs: as the settings say, and the app when there is one."""
        settings = self.settings()
        hook = None if settings.app is None else config.load_app(settings.app).redact.hook
        return settings.redaction(hook)

    def tables(self) -> list[TableOptions]:
        """How the tables of the app are worked on; none when no app is named."""
        settings = self.settings()
        return [table.options for table in config.load_app(settings.app).tables.values()] if settings.app else []

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """Somebody who can look at jobs and act on them; refuses a schema this code does not know."""
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
        """The event log, and who can act on its consumers; with ``app``, its types of events are known.

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


def names_a_database(app: Howdah) -> bool:
    """Whether the app knows its database without our help."""
    try:
        return bool(app.database)
    except ConfigError:
        return False


def targeted(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--dsn`, `--schema`, `-a` and `--config`, and pass it the :class:`Target` first."""

    @click.option("--dsn", metavar="DSN", help="The database.  [env: HOWDAH_DSN, DATABASE_URL, PG*]")
    @click.option("--schema", metavar="NAME", help="The schema of Howdah's tables.  [default: howdah]")
    @click.option("-a", "--app", "app_spec", metavar="MODULE:ATTR", help="The application.  [env: HOWDAH_APP]")
    @click.option("--config", "config_file", metavar="FILE", help="The settings file.  [default: howdah.toml, upwards]")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        dsn: str | None,
        schema: str | None,
        app_spec: str | None,
        config_file: str | None,
        **options: Any,
    ) -> T:
        return command(Target(dsn, schema, app_spec, config_file), *args, **options)

    return wrapped


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(main)


def finish(code: int) -> None:
    """End the command with this exit code."""
    if code:
        click.get_current_context().exit(code)


def read_ids(words: Sequence[str], what: str = "job id") -> list[int]:
    """Read job ids, or what else is numbered so, and ranges of them.

    >>> read_ids(["5", "7", "10-12"])
    [5, 7, 10, 11, 12]
    """
    ids: dict[int, None] = {}
    for word in ",".join(words).replace(" ", ",").split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", word)
        if match is None:
            raise click.UsageError(f"{word!r} is not a {what}; write 7 or 10-20")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise click.UsageError(f"the range {word} runs backwards; write {last}-{first}")
        if len(ids) + last - first >= LONGEST_RANGE:
            raise click.UsageError(f"{word} is too much at once; {LONGEST_RANGE:,} ids are allowed")
        ids.update(dict.fromkeys(range(first, last + 1)))
    return list(ids)


class Duration(click.ParamType[float]):
    """Seconds, or a number with a unit: 90s, 15m, 24h, 14d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        try:
            return config.seconds(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


class Position(click.ParamType[int]):
    """A position in the log, or the version of a stream."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        text = str(value)
        if not text.isdecimal() or int(text) > LARGEST_POSITION:
            self.fail(f"{text!r} is not a position; write a number from 0 on", param, ctx)
        return int(text)


DURATION = Duration()
POSITION = Position()
