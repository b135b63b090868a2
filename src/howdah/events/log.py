"""The event log of an application: append, read, and wait for consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from howdah.contrib import is_native
from howdah.errors import ConfigError, HowdahError
from howdah.events.admin import LogAdmin
from howdah.events.append import Appender, ForeignAppender, Origin, check_expect
from howdah.events.event import Appended, Event, EventTypes, split_stream
from howdah.events.read import EventReader, Frontier
from howdah.postgres.database import Database
from howdah.store import Transaction

POLL_INTERVALS = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Seconds between polls of a checkpoint in ``wait_for``."""


class Clients(NamedTuple):
    """The appender, reader and admin of one event loop."""

    appender: Appender
    reader: EventReader
    admin: LogAdmin


class Log:
    """The event log. Its clients belong to the event loop they are used in."""

    def __init__(
        self,
        types: EventTypes,
        here: Callable[[], Clients],
        there: Callable[[Callable[[Clients], Coroutine[Any, Any, Any]]], Any],
        foreign: Callable[[], ForeignAppender],
    ) -> None:
        self._types = types
        self._here = here
        self._there = there
        self._foreign = foreign

    @property
    def admin(self) -> LogAdmin:
        """Inspect and manage consumers."""
        return self._here().admin

    async def append(
        self,
        stream: str,
        events: object,
        *,
        expect: int | None = None,
        conn: Any = None,
        correlation: str | None = None,
        causation: str | None = None,
    ) -> Appended:
        """Append one event or several to a stream ``Type-id``; with ``conn``, in that connection's transaction.

        ``expect``: ``None`` any version, 0 a new stream, else the version the stream must be at, or
        :class:`StreamConflict`. Inside a consumer or a task, correlation and causation are filled in.
        """
        return await self._here().appender.append(
            stream, events, expect=expect, conn=conn, correlation=correlation, causation=causation
        )

    async def append_many(self, streams: Iterable[tuple[str, object]], *, conn: Any = None) -> int:
        """Append to many streams, all or nothing, by COPY; return the position of the last event."""
        return await self._here().appender.append_many(streams, conn=conn)

    def append_sync(
        self,
        stream: str,
        events: object,
        *,
        expect: int | None = None,
        conn: Any = None,
        correlation: str | None = None,
        causation: str | None = None,
    ) -> Appended:
        """:meth:`append` from synchronous code; with ``conn``, in that connection's transaction."""
        split_stream(stream)
        check_expect(expect)
        by = Origin.here(correlation, causation)
        if conn is None:
            made: Appended = self._there(
                lambda clients: clients.appender.append(
                    stream, events, expect=expect, conn=None, correlation=by.correlation, causation=by.causation
                )
            )
            return made
        if is_native(conn) or isinstance(conn, Transaction):
            raise ConfigError(f"{type(conn).__name__} is asynchronous; await append(...) instead")
        return self._foreign().append_sync(conn, stream, self._types.ready(events), expect, by)

    async def stream(
        self,
        stream: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Iterable[type | str] | None = None,
        backwards: bool = False,
        limit: int = 1000,
    ) -> list[Event]:
        """Return the events of one stream, by version: above ``after`` and below ``before``, of these types."""
        return await self._here().reader.stream(
            stream, after=after, before=before, types=self._names(types), backwards=backwards, limit=limit
        )

    async def read(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        only: Iterable[str] | None = None,
        types: Iterable[type | str] | None = None,
        backwards: bool = False,
        limit: int = 1000,
    ) -> list[Event]:
        """Return events of all streams, by position: above ``after``, below ``before``, never beyond the safe frontier.

        ``only``: of these stream types; ``types``: of these event types.
        """
        return await self._here().reader.read(
            after=after, before=before, only=only, types=self._names(types), backwards=backwards, limit=limit
        )

    async def frontier(self) -> Frontier:
        """Return the head of the log, and the frontier up to which it can be read."""
        return await self._here().reader.frontier()

    async def wait_for(self, consumer: str, position: int | Appended, *, timeout: float = 10.0) -> None:
        """Return once a consumer has handled everything up to a position: read your own writes.

        Raises ``TimeoutError`` after ``timeout`` seconds, and :class:`HowdahError` at once when the consumer is halted.
        """
        wanted = position.position if isinstance(position, Appended) else position
        admin, began, polls = self._here().admin, time.monotonic(), 0
        while True:
            row = await admin.progress(consumer)
            if row["position"] >= wanted:
                return
            if row["halted"]:
                raise HowdahError(f"consumer {consumer!r} is halted at {row['position']}: {row['error']}")
            if time.monotonic() - began >= timeout:
                resting = " and is paused" if row["paused"] else ""
                raise TimeoutError(
                    f"consumer {consumer!r} is at {row['position']}{resting}, not at {wanted}, after {timeout:g} s"
                )
            await asyncio.sleep(POLL_INTERVALS[min(polls, len(POLL_INTERVALS) - 1)])
            polls += 1

    def _names(self, types: Iterable[type | str] | None) -> list[str] | None:
        if isinstance(types, str | type):
            raise ConfigError(f"give a list of types, not the single {types!r}")
        return None if types is None else [self._types.name(each) for each in types]


def clients(database: Database, pool: Callable[[], Any], types: EventTypes, foreign: ForeignAppender) -> Clients:
    """Make the clients that use this pool."""
    return Clients(
        Appender(database, pool, types, foreign), EventReader(database, pool, types), LogAdmin(database, pool)
    )
