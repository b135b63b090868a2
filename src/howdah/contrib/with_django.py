"""Django: enqueue through ``django.db.connection`` or ``connections[alias]``, and run tasks that use models."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from django.db import close_old_connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from howdah.contrib import ForeignConnection, percent
from howdah.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


def wrap(conn: object) -> ForeignConnection | None:
    """Wrap a connection of Django's, or ``None`` if it is something else of Django's."""
    if isinstance(conn, ConnectionProxy):
        # also what the default cache is behind, so look at what it stands for
        conn = conn._connections[conn._alias]
    if not isinstance(conn, BaseDatabaseWrapper):
        return None
    if conn.vendor != "postgresql":
        raise ConfigError(
            f"database {conn.alias!r} is {conn.vendor}, jobs live in PostgreSQL;"
            " enqueue through connections[...] of the alias where they are"
        )
    return DjangoConnection(conn)


class DjangoConnection:
    """A ``DatabaseWrapper`` of the PostgreSQL backend, or of one built upon it."""

    is_async = False

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def run(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement and return its rows; none if it has no result."""
        with self._conn.cursor() as cursor:
            cursor.execute(percent(statement), params)
            rows: list[Any] = cursor.fetchall() if cursor.description else []
            return rows


def fresh_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Drop broken and aged connections before and after each call, as Django does around each request.

    Put it below ``@app.task`` on every task that uses models: without it a thread whose connection broke
    keeps the broken one.
    """
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{function.__qualname__} is a coroutine function; write `def`, then it runs in a thread")

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run
