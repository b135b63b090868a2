"""Every way to hold a connection of another library, behind one face.

Async libraries run in an event loop of the way's own, so that one test speaks for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connection, connections, transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from howdah import Appended, Enqueued, Howdah, Task

settings.configure(
    USE_TZ=True,
    DATABASES={
        "default": {"ENGINE": "django.db.backends.postgresql"},
        "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    },
)
django.setup()


class ForeignConnection:
    """A connection that is the caller's, and how its transactions begin."""

    def __init__(self, conn: Any, begin: Callable[[], AbstractContextManager[Any]]) -> None:
        self.conn = conn
        self.transaction = begin

    def enqueue(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> Enqueued:
        return task.using(conn=self.conn).enqueue_sync(*args, **kwargs)

    def append(self, app: Howdah, stream: str, events: Any, **options: Any) -> Appended:
        return app.log.append_sync(stream, events, conn=self.conn, **options)


class AsyncForeignConnection:
    """The same for an async library."""

    def __init__(self, conn: Any, begin: Callable[[], Any], runner: asyncio.Runner) -> None:
        self.conn = conn
        self._begin = begin
        self._runner = runner

    def enqueue(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> Enqueued:
        return self._runner.run(task.using(conn=self.conn).enqueue(*args, **kwargs))

    def append(self, app: Howdah, stream: str, events: Any, **options: Any) -> Appended:
        return self._runner.run(app.log.append(stream, events, conn=self.conn, **options))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with entered(self._begin(), self._runner):
            yield


@contextmanager
def entered(manager: Any, runner: asyncio.Runner) -> Iterator[Any]:
    """An async context manager, entered and left in the runner's loop."""
    value = runner.run(_await(manager.__aenter__()))
    try:
        yield value
    except BaseException as error:
        runner.run(_await(manager.__aexit__(type(error), error, error.__traceback__)))
        raise
    runner.run(_await(manager.__aexit__(None, None, None)))


async def _await(awaitable: Any) -> Any:
    return await awaitable


def engine_for(dsn: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))


def async_engine_for(dsn: str, driver: str = "asyncpg") -> sqlalchemy_asyncio.AsyncEngine:
    connect = asyncpg.connect if driver == "asyncpg" else psycopg.AsyncConnection.connect
    return sqlalchemy_asyncio.create_async_engine(f"postgresql+{driver}://", async_creator=lambda: connect(dsn))


@contextmanager
def with_psycopg(dsn: str, **options: Any) -> Iterator[ForeignConnection]:
    with psycopg.connect(dsn, **options) as conn:
        yield ForeignConnection(conn, conn.transaction)


@contextmanager
def with_async_psycopg(dsn: str, **options: Any) -> Iterator[AsyncForeignConnection]:
    with asyncio.Runner() as runner:
        conn = runner.run(psycopg.AsyncConnection.connect(dsn, **options))
        yield AsyncForeignConnection(conn, conn.transaction, runner)
        runner.run(conn.close())


@contextmanager
def with_sqlalchemy(dsn: str, kind: str) -> Iterator[ForeignConnection]:
    engine = engine_for(dsn)
    factory = orm.sessionmaker(engine)
    opened = {"connection": engine.connect, "session": factory, "scoped_session": orm.scoped_session(factory)}[kind]
    conn: Any = opened if kind == "scoped_session" else opened()
    yield ForeignConnection(conn, conn.begin)
    conn.close()
    engine.dispose()


@contextmanager
def with_async_sqlalchemy(dsn: str, driver: str, kind: str) -> Iterator[AsyncForeignConnection]:
    engine = async_engine_for(dsn, driver)
    factory = sqlalchemy_asyncio.async_sessionmaker(engine)
    with asyncio.Runner() as runner:
        conn: Any = {
            "connection": engine.connect,
            "session": factory,
            "scoped_session": lambda: sqlalchemy_asyncio.async_scoped_session(factory, lambda: "everywhere"),
        }[kind]()
        if kind == "connection":
            runner.run(_await(conn.start()))
        yield AsyncForeignConnection(conn, conn.begin, runner)
        runner.run(conn.close())
        runner.run(engine.dispose())


@contextmanager
def with_django(dsn: str) -> Iterator[ForeignConnection]:
    """``django.db.connection``, led to this database."""
    parts: dict[str, Any] = conninfo_to_dict(dsn)
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    connections.settings["default"].update({setting: parts.get(part, "") for part, setting in names.items()})
    yield ForeignConnection(connection, transaction.atomic)
    connections["default"].close()
    del connections["default"]


FOREIGN_CONNECTIONS: dict[str, Callable[[str], AbstractContextManager[ForeignConnection | AsyncForeignConnection]]] = {
    "psycopg": with_psycopg,
    "psycopg autocommit": lambda dsn: with_psycopg(dsn, autocommit=True),
    "psycopg dict_row": lambda dsn: with_psycopg(dsn, row_factory=dict_row),
    "psycopg RawCursor": lambda dsn: with_psycopg(dsn, cursor_factory=psycopg.RawCursor),
    "psycopg ClientCursor": lambda dsn: with_psycopg(dsn, cursor_factory=psycopg.ClientCursor),
    "async psycopg": with_async_psycopg,
    "async psycopg autocommit": lambda dsn: with_async_psycopg(dsn, autocommit=True),
    "async psycopg dict_row": lambda dsn: with_async_psycopg(dsn, row_factory=dict_row),
    "sqlalchemy connection": lambda dsn: with_sqlalchemy(dsn, "connection"),
    "sqlalchemy session": lambda dsn: with_sqlalchemy(dsn, "session"),
    "sqlalchemy scoped_session": lambda dsn: with_sqlalchemy(dsn, "scoped_session"),
    "sqlalchemy asyncpg connection": lambda dsn: with_async_sqlalchemy(dsn, "asyncpg", "connection"),
    "sqlalchemy asyncpg session": lambda dsn: with_async_sqlalchemy(dsn, "asyncpg", "session"),
    "sqlalchemy asyncpg scoped_session": lambda dsn: with_async_sqlalchemy(dsn, "asyncpg", "scoped_session"),
    "sqlalchemy async psycopg connection": lambda dsn: with_async_sqlalchemy(dsn, "psycopg", "connection"),
    "sqlalchemy async psycopg session": lambda dsn: with_async_sqlalchemy(dsn, "psycopg", "session"),
    "django": with_django,
}
