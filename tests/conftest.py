"""What every test may ask for: one PostgreSQL per run.

HOWDAH_TEST_PG names the major version of the embedded server; HOWDAH_TEST_DSN another server to use instead,
as its superuser. HOWDAH_TEST_ROLES lets applications work as the roles of deploy/roles.sql, see ``kit.roles``.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from howdah import Howdah
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from howdah_lab.torture.servers.pooler import Pooler
from kit.roles import AS_ROLES, as_role, drop_roles, give_passwords, run_roles, settle
from kit.signals import pass_on_none_ignored

numbers = itertools.count()

SETTINGS = {
    "fsync": "off",  # the machine does not lose power during a test; synchronous_commit stays on
    "max_connections": "300",
}
CHEAP_LOGIN = {"scram_iterations": "1"}
"""Settings since PostgreSQL 16: the default of 4,096 makes a login the most expensive statement of many tests."""


@dataclass(frozen=True, slots=True)
class NamedServer:
    """A server somebody else runs."""

    dsn: str

    def dsn_for(self, database: str) -> str:
        return urlunsplit(urlsplit(self.dsn)._replace(path="/" + quote(database, safe="")))


class Administrator:
    """The superuser's connection that creates and drops databases; it is opened again if a test closed it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._conn: psycopg.Connection | None = None

    def execute(self, statement: str, **names: str) -> None:
        """Run a statement with these identifiers."""
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self._dsn, autocommit=True)
        self._conn.execute(sql.SQL(statement).format(**{key: sql.Identifier(name) for key, name in names.items()}))

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


def pytest_configure() -> None:
    """Let signals end what tests start, however the tests themselves were started."""
    pass_on_none_ignored()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As roles, what only a superuser can do is left out."""
    for item in items if AS_ROLES else ():
        if marker := item.get_closest_marker("superuser"):
            item.add_marker(pytest.mark.skip(reason=f"only as superuser: {marker.args[0]}"))


def pytest_collection_finish() -> None:
    """Leave the thousands of collected tests out of every garbage collection that follows."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server | NamedServer]:
    """The PostgreSQL of this run: ``dsn`` of its superuser, ``dsn_for(database)``."""
    named = os.environ.get("HOWDAH_TEST_DSN")
    if named:
        yield NamedServer(named)
        return
    version = int(os.environ.get("HOWDAH_TEST_PG", "18"))
    settings = SETTINGS | (CHEAP_LOGIN if version >= 16 else {})
    with embedded.start(version=version, settings=settings) as server:
        with psycopg.connect(server.dsn, autocommit=True) as conn:  # initdb hashed the password at the default
            conn.execute(sql.SQL("alter role postgres password {}").format(conn.info.password))
        yield server


@pytest.fixture(scope="session")
def administrator(server: embedded.Server | NamedServer) -> Iterator[Administrator]:
    """Creates and drops databases."""
    administrator = Administrator(server.dsn)
    yield administrator
    administrator.close()


@pytest.fixture(scope="session")
def pooler(server: embedded.Server | NamedServer) -> Iterator[Pooler | None]:
    """PgBouncer in transaction mode in front of the server, when HOWDAH_TEST_PGBOUNCER asks for it."""
    if not os.environ.get("HOWDAH_TEST_PGBOUNCER"):
        yield None
        return
    with Pooler(server.dsn) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def template(server: embedded.Server | NamedServer, administrator: Administrator) -> str:
    """A migrated database to copy."""
    name = f"howdah_template_{os.getpid()}"
    administrator.execute("create database {name}", name=name)
    dsn = server.dsn_for(name)
    if AS_ROLES:
        settle(dsn)
        dsn = as_role(dsn, "howdah_owner")
    asyncio.run(migrate.migrate(Database(dsn)))
    if AS_ROLES:
        run_roles(dsn)
    return name


@pytest.fixture
def database(
    server: embedded.Server | NamedServer, administrator: Administrator, template: str, pooler: Pooler | None
) -> Iterator[Database]:
    """A fresh, migrated database."""
    name = f"howdah_test_{os.getpid()}_{next(numbers)}"
    # Without fsync, copying files takes a third less CPU than copying through the WAL, the default since 15.
    strategy = "strategy file_copy" if isinstance(server, embedded.Server) and server.major >= 15 else ""
    administrator.execute(f"create database {{name}} template {{template}} {strategy}", name=name, template=template)
    if AS_ROLES:  # what deploy/roles.sql grants on a database is not copied with it
        administrator.execute("grant create on database {name} to howdah_owner", name=name)
    dsn = pooler.dsn_for(name) if pooler else server.dsn_for(name)
    yield Database(as_role(dsn, "howdah_worker") if AS_ROLES else dsn)
    administrator.execute("drop database if exists {name} with (force)", name=name)


@pytest.fixture
def direct(database: Database, server: embedded.Server | NamedServer) -> Database:
    """The same database without a pooler in between."""
    return Database(server.dsn_for(urlsplit(database.dsn).path[1:]))


@pytest.fixture
def app(database: Database) -> Howdah:
    """An application on a fresh database."""
    return Howdah(database.dsn)


@pytest.fixture
async def conn(direct: Database) -> AsyncIterator[Any]:
    """A connection of one's own to look into the tables with."""
    conn = await direct.connect("test")
    yield conn
    await conn.close()


@pytest.fixture
def roles(direct: Database) -> Iterator[Callable[[str], str]]:
    """A migrated database on which deploy/roles.sql was run; gives its DSN by role."""
    run_roles(direct.dsn)
    try:
        give_passwords(direct.dsn)
        yield lambda role: as_role(direct.dsn, role)
    finally:
        drop_roles(direct.dsn)
