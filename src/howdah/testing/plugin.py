"""Fixtures for pytest. No server is started, and no module imported, before a fixture is used.

They are plain functions, so that they work in synchronous tests and in tests run by anyio or pytest-asyncio.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from howdah.app import Howdah
    from howdah.testing.database import Databases, TestDatabaseServer

Prepare = Callable[[str], object]
Bind = Callable[["Howdah"], "Howdah"]

BOUND: pytest.StashKey[list[Howdah]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that set the server and the app."""
    parser.getgroup("howdah").addoption(
        "--howdah-dsn",
        metavar="DSN",
        help="server for the fixtures of Howdah, as a user who may create databases; default: HOWDAH_TEST_DSN, else"
        " an embedded one",
    )
    parser.addini("howdah_app", "the app that the fixture howdah_app gives, as module:attribute", default="")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Close the connections of an asynchronous test in its own event loop, which is closed before fixtures end."""
    test, apps = getattr(item, "obj", None), item.stash.get(BOUND, None)
    if not apps or not inspect.iscoroutinefunction(test):
        return (yield)
    item.obj = _closing(test, apps)  # type: ignore[attr-defined]
    try:
        return (yield)
    finally:
        item.obj = test  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def howdah_server(pytestconfig: pytest.Config) -> Iterator[TestDatabaseServer]:
    """The PostgreSQL of this run: ``dsn`` of a user who may create databases, ``dsn_for(database)``."""
    from howdah.postgres.embedded import server as embedded
    from howdah.testing.database import SETTINGS, NamedServer

    named = pytestconfig.getoption("--howdah-dsn") or os.environ.get("HOWDAH_TEST_DSN")
    if named:
        yield NamedServer(named)
        return
    with embedded.start(settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def howdah_prepare() -> Prepare | None:
    """Function that is called once with the DSN of the migrated template; override it to create your own tables."""
    return None


@pytest.fixture(scope="session")
def howdah_databases(howdah_server: TestDatabaseServer) -> Databases:
    """Creates the databases of this run."""
    from howdah.testing.database import Databases

    return Databases(howdah_server)


@pytest.fixture(scope="session")
def howdah_template(howdah_databases: Databases, howdah_prepare: Prepare | None) -> Iterator[str]:
    """Name of the template database that every test gets a copy of."""
    from howdah.testing.database import migrate_to_newest

    name = howdah_databases.create()
    try:
        dsn = howdah_databases.server.dsn_for(name)
        migrate_to_newest(dsn)
        if howdah_prepare is not None:
            howdah_prepare(dsn)
        howdah_databases.settle(name)
        yield name
    finally:
        howdah_databases.drop(name)


@pytest.fixture
def howdah_dsn(howdah_databases: Databases, howdah_template: str) -> Iterator[str]:
    """A fresh, migrated database; it is dropped after the test."""
    name = howdah_databases.create(howdah_template)
    yield howdah_databases.server.dsn_for(name)
    howdah_databases.drop(name)


@pytest.fixture
def howdah_bind(request: pytest.FixtureRequest, howdah_dsn: str) -> Iterator[Bind]:
    """Function that lets an app use the fresh database during the test: ``howdah_bind(app)`` returns the app."""
    from howdah.testing.database import connected, migrate_to_newest

    bound = request.node.stash.setdefault(BOUND, [])
    with ExitStack() as stack:

        def bind(app: Howdah) -> Howdah:
            stack.enter_context(connected(app, howdah_dsn))
            if app.database.schema != "howdah":
                migrate_to_newest(howdah_dsn, app.database.schema)
            bound.append(app)
            return app

        yield bind
    bound.clear()


@pytest.fixture
def howdah_app(pytestconfig: pytest.Config, howdah_bind: Bind) -> Howdah:
    """The app of the option ``howdah_app``, on a fresh database; override it to make the app in another way."""
    from howdah.config import load_app

    name = pytestconfig.getini("howdah_app")
    if not name:
        pytest.fail(
            "no app is configured; set howdah_app = module:attribute in the pytest configuration, or define a fixture"
            " howdah_app that returns howdah_bind(app)",
            pytrace=False,
        )
    return howdah_bind(load_app(name))


def _closing(test: Callable[..., Any], apps: list[Howdah]) -> Callable[..., Any]:
    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return await test(*args, **kwargs)
        finally:
            for app in apps:
                await app.close()

    return run
