"""Fixtures for pytest. No server is started, and nothing imported, before a fixture is asked for.

They are plain functions, so that they serve synchronous tests as well as those run by anyio or pytest-asyncio.
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
    from howdah.testing.database import Databases, Server

Prepare = Callable[[str], object]
Bind = Callable[["Howdah"], "Howdah"]

BOUND: pytest.StashKey[list[Howdah]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say which server and which app to use."""
    parser.getgroup("howdah").addoption(
        "--howdah-dsn",
        metavar="DSN",
        help="server for the fixtures of Howdah, as a user who may create databases; default: HOWDAH_TEST_DSN, else"
        " an embedded one",
    )
    parser.addini("howdah_app", "the app that the fixture howdah_app gives, as module:attribute", default="")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Close the connections of an asynchronous test in its own event loop, which is gone when fixtures end."""
    test, apps = getattr(item, "obj", None), item.stash.get(BOUND, None)
    if not apps or not inspect.iscoroutinefunction(test):
        return (yield)
    item.obj = _closing(test, apps)  # type: ignore[attr-defined]
    try:
        return (yield)
    finally:
        item.obj = test  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def howdah_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """The PostgreSQL of this run: ``dsn`` of a user who may create databases, ``dsn_for(database)``."""
    from howdah.pg import embedded
    from howdah.testing.database import SETTINGS, NamedServer

    named = pytestconfig.getoption("--howdah-dsn") or os.environ.get("HOWDAH_TEST_DSN")
    if named:
        yield NamedServer(named)
        return
    with embedded.start(settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def howdah_prepare() -> Prepare | None:
    """What to do once with the migrated template, given its DSN: override it to create your own tables."""
    return None


@pytest.fixture(scope="session")
def howdah_databases(howdah_server: Server) -> Databases:
    """Makes the databases of this run."""
    from howdah.testing.database import Databases

    return Databases(howdah_server)


@pytest.fixture(scope="session")
def howdah_template(howdah_databases: Databases, howdah_prepare: Prepare | None) -> Iterator[str]:
    """The name of the database that every test gets a copy of."""
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
    """Lets an app use the fresh database until the test is over: ``howdah_bind(app)`` returns the app."""
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
    """The app of the option ``howdah_app``, on a fresh database; override it to make the app otherwise."""
    from howdah.config import load_app

    name = pytestconfig.getini("howdah_app")
    if not name:
        pytest.fail(
            "no app is named; set howdah_app = module:attribute in the configuration of pytest, or define a fixture"
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
