"""psycopg: enqueue through its connections, sync and async."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from howdah.contrib import ForeignConnection, percent


def wrap(conn: object) -> ForeignConnection | None:
    """Wrap a psycopg connection, or ``None`` if it is something else of psycopg's."""
    if isinstance(conn, psycopg.Connection):
        return SyncPsycopg(conn)
    if isinstance(conn, psycopg.AsyncConnection):
        return AsyncPsycopg(conn)
    return None


# Both make the cursor themselves: conn.cursor() would use the caller's factories, and those may want other
# placeholders or give other rows.


class SyncPsycopg:
    """A ``psycopg.Connection``."""

    is_async = False

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def run(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement and return its rows; none if it has no result."""
        query: Any = percent(statement)
        with psycopg.Cursor(self._conn, row_factory=tuple_row) as cursor:
            cursor.execute(query, params)
            return cursor.fetchall() if _has_rows(cursor) else []


class AsyncPsycopg:
    """A ``psycopg.AsyncConnection``."""

    is_async = True

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn

    async def run(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement and return its rows; none if it has no result."""
        query: Any = percent(statement)
        async with psycopg.AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
            await cursor.execute(query, params)
            return await cursor.fetchall() if _has_rows(cursor) else []


def _has_rows(cursor: Any) -> bool:
    # in a pipeline the description comes with the rows; all statements that are sent there have some
    return cursor.description is not None or cursor.connection.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
