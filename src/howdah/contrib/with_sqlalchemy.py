"""SQLAlchemy: enqueue through its connections and sessions, sync and async, whatever driver is below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from howdah.contrib import ForeignConnection, colon
from howdah.errors import ConfigError


def wrap(conn: object) -> ForeignConnection | None:
    """Wrap a connection or a session, or ``None`` if it is something else of SQLAlchemy's."""
    # by name: the classes live in parts of SQLAlchemy that an application may never load
    names = {parent.__name__ for parent in conn.__class__.__mro__ if parent.__module__.startswith("sqlalchemy.")}
    if "Connection" in names:
        return SyncSQLAlchemy(conn, is_session=False)
    if names & {"Session", "scoped_session"}:
        return SyncSQLAlchemy(conn, is_session=True)
    if "AsyncConnection" in names:
        return AsyncSQLAlchemy(conn, is_session=False)
    if names & {"AsyncSession", "async_scoped_session"}:
        return AsyncSQLAlchemy(conn, is_session=True)
    return None


# Both go below the session: its execute() would call the caller's hooks for ORM statements.


class SyncSQLAlchemy:
    """A ``Connection``, or the one a ``Session`` or ``scoped_session`` works on."""

    is_async = False

    def __init__(self, conn: Any, *, is_session: bool) -> None:
        self._conn = conn
        self._is_session = is_session

    def run(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement and return its rows; none if it has no result."""
        conn = self._conn.connection() if self._is_session else self._conn
        _check(conn)
        result = conn.execute(text(colon(statement)), params)
        return list(result) if result.returns_rows else []


class AsyncSQLAlchemy:
    """An ``AsyncConnection``, or the one an ``AsyncSession`` or ``async_scoped_session`` works on."""

    is_async = True

    def __init__(self, conn: Any, *, is_session: bool) -> None:
        self._conn = conn
        self._is_session = is_session

    async def run(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement and return its rows; none if it has no result."""
        conn = await self._conn.connection() if self._is_session else self._conn
        _check(conn)
        result = await conn.execute(text(colon(statement)), params)
        return list(result) if result.returns_rows else []


def _check(conn: Any) -> None:
    if conn.dialect.name != "postgresql":
        raise ConfigError(
            f"cannot enqueue through a connection to {conn.dialect.name}; give one to the PostgreSQL where the jobs are"
        )
