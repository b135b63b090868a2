"""Borrow: a connection of another library, in its owner's transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import asyncpg

from howdah.errors import ConfigError


class Borrowed(Protocol):
    """A connection of another library, through which one statement can be run."""

    is_async: bool

    def run(self, statement: str, params: Mapping[str, Any]) -> Any:
        """Run a statement with ``:name`` parameters; rows, or an awaitable of rows if ``is_async``."""
        ...


Borrow = Callable[[object], Borrowed | None]


def borrowed(borrow: Borrow, conn: object, *, is_async: bool, verb: str) -> Borrowed:
    """Wrap ``conn``, or say why that cannot be; ``verb`` is what the caller was about to do."""
    found = borrow(conn)
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
    """Whether this is a connection of our own driver."""
    return isinstance(conn, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)


def sqlstate(error: BaseException | None) -> str | None:
    """The SQLSTATE of an error of any library, or of what it wraps."""
    for _ in range(5):
        if error is None:
            return None
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None
