"""Connections of other libraries (psycopg, SQLAlchemy, Django), used inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import asyncpg

from howdah.errors import ConfigError


class ForeignConnection(Protocol):
    """A connection of another library that can run one statement."""

    is_async: bool

    def run(self, statement: str, params: Mapping[str, Any]) -> Any:
        """Run a statement with ``:name`` parameters; rows, or an awaitable of rows if ``is_async``."""
        ...


WrapConnection = Callable[[object], ForeignConnection | None]


def foreign_connection(wrap: WrapConnection, conn: object, *, is_async: bool, verb: str) -> ForeignConnection:
    """Wrap ``conn``, or raise :class:`ConfigError`; ``verb`` names the call in the message."""
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
