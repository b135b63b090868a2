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
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.sql import render
from howdah.sync_bridge import run_in_thread

SETTINGS = {
    "fsync": "off",  # durability is not needed: a crash of the machine ends the test run as well
    "max_connections": "300",
}
STATEMENT_TIMEOUT = 120.0
"""Seconds to create or drop a database on a busy machine."""


class TestDatabaseServer(Protocol):
    """A PostgreSQL server on which databases can be created."""

    dsn: str

    def dsn_for(self, database: str) -> str:
        """Return the DSN of one of its databases."""
        ...


@dataclass(slots=True)
class NamedServer:
    """A server that is already running."""

    dsn: str

    def __post_init__(self) -> None:
        if "://" not in self.dsn:
            raise ConfigError("the DSN of the test server must be a URL, as in postgresql://user@host/postgres")

    def dsn_for(self, database: str) -> str:
        """Return the DSN of one of its databases."""
        return urlunsplit(urlsplit(self.dsn)._replace(path="/" + quote(database, safe="")))


class Databases:
    """Creates and drops the databases of one test run. Names are random, so that runs can share a server."""

    def __init__(self, server: TestDatabaseServer) -> None:
        self.server = server
        self._run = f"howdah_test_{secrets.token_hex(4)}"
        self._made = 0

    def create(self, template: str = "template1") -> str:
        """Create a copy of a database and return its name."""
        self._made += 1
        name = f"{self._run}_{self._made}"
        self._execute(render("create database {name} template {template}", {"name": name, "template": template}))
        return name

    def drop(self, name: str) -> None:
        """Drop a database, even if clients are connected to it."""
        self._execute(render("drop database if exists {name} with (force)", {"name": name}))

    def settle(self, name: str) -> None:
        """Disconnect all clients, so that the database can be copied."""
        self._execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)

    def _execute(self, statement: str, *args: str) -> None:
        async def execute() -> None:
            conn = await Database(self.server.dsn, command_timeout=STATEMENT_TIMEOUT).connect("testing")
            try:
                await conn.execute(statement, *args)
            finally:
                await conn.close()

        run_in_thread(execute())


def migrate_to_newest(dsn: str, schema: str = "howdah") -> None:
    """Migrate the database to the schema version of this code."""
    run_in_thread(migrate.migrate(Database(dsn, schema=schema)))


@contextmanager
def connected(app: Howdah, dsn: str) -> Iterator[None]:
    """Let ``app`` use this database inside the block; afterwards restore the app and close its connections."""
    before = app._dsn
    app.connect_to(dsn)
    try:
        yield
    finally:
        # A closed loop has closed its connections; a running loop closes them itself.
        for loop in app._clients.stopped:
            loop.run_until_complete(app.close())
        app.connect_to(dsn)
        app._dsn = before
