"""Databases for tests: a migrated template, a copy of it for every test, and apps that use the copy."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from howdah.app import Howdah
from howdah.errors import ConfigError
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.pg.sql import render
from howdah.testing.apart import complete

SETTINGS = {
    "fsync": "off",  # a machine that loses power loses the test run, too
    "max_connections": "300",
}
PATIENCE = 120.0
"""Seconds to create or drop a database on a busy machine."""


class Server(Protocol):
    """A PostgreSQL on which databases can be made."""

    dsn: str

    def dsn_for(self, database: str) -> str:
        """The DSN of one of its databases."""
        ...


@dataclass(slots=True)
class NamedServer:
    """A server somebody else runs."""

    dsn: str

    def __post_init__(self) -> None:
        if "://" not in self.dsn:
            raise ConfigError("the DSN of the test server must be a URL, as in postgresql://user@host/postgres")

    def dsn_for(self, database: str) -> str:
        """The DSN of one of its databases."""
        return urlunsplit(urlsplit(self.dsn)._replace(path="/" + quote(database, safe="")))


class Databases:
    """Makes and drops the databases of one test run. The names are random: many runs can share a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._run = f"howdah_test_{secrets.token_hex(4)}"
        self._made = 0

    def create(self, template: str = "template1") -> str:
        """Create a copy of a database and return its name."""
        self._made += 1
        name = f"{self._run}_{self._made}"
        self._say(render("create database {name} template {template}", {"name": name, "template": template}))
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self._say(render("drop database if exists {name} with (force)", {"name": name}))

    def settle(self, name: str) -> None:
        """Disconnect whoever is connected, so that the database can be copied."""
        self._say("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)

    def _say(self, statement: str, *args: str) -> None:
        async def say() -> None:
            conn = await Database(self.server.dsn, command_timeout=PATIENCE).connect("testing")
            try:
                await conn.execute(statement, *args)
            finally:
                await conn.close()

        complete(say())


def migrate_to_newest(dsn: str, schema: str = "howdah") -> None:
    """Bring the database to the schema this code needs."""
    complete(migrate.migrate(Database(dsn, schema=schema)))


@contextmanager
def connected(app: Howdah, dsn: str) -> Iterator[None]:
    """Let ``app`` use this database for a while; afterwards it is as before, with no connection left open."""
    before = app._dsn
    app.connect_to(dsn)
    try:
        yield
    finally:
        # A loop that is closed took its connections with it; one that runs closes them itself.
        for loop in app._here.stopped:
            loop.run_until_complete(app.close())
        app.connect_to(dsn)
        app._dsn = before
