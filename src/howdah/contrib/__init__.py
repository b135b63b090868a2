"""Connections of other libraries (psycopg, SQLAlchemy, Django), used inside the caller's transaction.

A library is imported here only when the caller already has one of its connections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import asyncpg

from howdah.child_process import reject_second_run
from howdah.errors import ConfigError

LIBRARIES = ("psycopg", "sqlalchemy", "django")


class ForeignConnection(Protocol):
    """A connection of another library that can run one statement."""

    is_async: bool

    def run(self, statement: str, params: Mapping[str, Any]) -> Any:
        """Run a statement with ``:name`` parameters; rows, or an awaitable of rows if ``is_async``."""
        ...


def wrap(conn: object) -> ForeignConnection | None:
    """Wrap a connection of another library; return ``None`` if the library is not known."""
    # __class__, not type(): a proxy, as tracers make them, has the class of its connection there
    origins = {parent.__module__.partition(".")[0] for parent in conn.__class__.__mro__}
    for library in LIBRARIES:
        if library in origins:
            wrapped: ForeignConnection | None = import_module(f"howdah.contrib.with_{library}").wrap(conn)
            if wrapped is not None:
                return wrapped
    return None


WrapConnection = Callable[[object], ForeignConnection | None]


def foreign_connection(wrap: WrapConnection, conn: object, *, is_async: bool, verb: str) -> ForeignConnection:
    """Wrap ``conn``, or raise :class:`ConfigError`; ``verb`` names the call in the message."""
    reject_second_run()
    found = wrap(conn)
    if found is None:
        raise ConfigError(
            f"cannot {verb} through a {type(conn).__module__}.{type(conn).__name__}; give an asyncpg, psycopg,"
            f" SQLAlchemy or Django connection, or call the SQL function {verb} yourself"
        )
    if is_async and not found.is_async:
        raise ConfigError(f"{type(conn).__name__} is synchronous; call {verb}_sync, or give an async connection")
    if found.is_async and not is_async:
        raise ConfigError(f"{type(conn).__name__} is asynchronous; await {verb}(...) instead")
    return found


Steps = Generator[tuple[str, dict[str, Any]], Any, list[Any]]
"""Yields statements with their parameters, receives the rows or the error of each, and returns rows."""


async def run_steps(conn: ForeignConnection, steps: Steps) -> list[Any]:
    """Run the statements on an asynchronous connection."""
    try:
        step = next(steps)
        while True:
            try:
                rows = await conn.run(*step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as end:
        result: list[Any] = end.value
        return result


def run_steps_sync(conn: ForeignConnection, steps: Steps) -> list[Any]:
    """Run the statements on a synchronous connection."""
    try:
        step = next(steps)
        while True:
            try:
                rows = conn.run(*step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as end:
        result: list[Any] = end.value
        return result


def is_native(conn: Any) -> bool:
    """Return whether this is an asyncpg connection."""
    return isinstance(conn, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)


def sqlstate(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error of any library, or of the error it wraps."""
    for _ in range(5):
        if error is None:
            return None
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None


_PLACEHOLDER = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|:([a-z_]+)|%""")


@lru_cache(maxsize=64)
def percent(statement: str) -> str:
    """Return a statement with ``:name`` as ``%(name)s`` and every other percent sign doubled, for psycopg and Django.

    Quoted names and literals keep their meaning: a schema may be called ``50%`` or ``:a``.

    >>> percent('select :a from "50%:b"')
    'select %(a)s from "50%%:b"'
    """

    def replace(piece: re.Match[str]) -> str:
        return f"%({piece[2]})s" if piece[2] else piece[0].replace("%", "%%")

    return _PLACEHOLDER.sub(replace, statement)


@lru_cache(maxsize=64)
def colon(statement: str) -> str:
    r"""Return a statement with ``:name`` left as it is and every other colon escaped, for SQLAlchemy.

    >>> print(colon('select :a from "50%:b"'))
    select :a from "50%\:b"
    """

    def replace(piece: re.Match[str]) -> str:
        return piece[0].replace(":", r"\:") if piece[1] else piece[0]

    return _PLACEHOLDER.sub(replace, statement)
