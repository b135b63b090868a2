"""Appends events to the log, in the caller's transaction or in one of its own."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NoReturn, cast

import asyncpg
import msgspec

from howdah import telemetry
from howdah.contrib import WrapConnection, foreign_connection, is_native, sqlstate
from howdah.errors import EventError, NoEvents, StreamConflict
from howdah.events.event import Appended, EncodedEvent, EventTypes, current, split_stream
from howdah.job import current as current_job
from howdah.postgres import sql
from howdah.postgres.database import Acquired, Database
from howdah.postgres.sql import columns, copy_field, render
from howdah.store import Transaction

CHUNK = 5000
PAUSES = (0.02, 0.1, 0.3, 1.0)
"""Longest random wait, in seconds, before a bulk append that conflicted with another one is retried."""
FOREIGN = """
select made.version, made.position
from {schema}.append(:stream, cast(:events as json), cast(:expect as bigint), cast(:correlation as text),
    cast(:causation as text), cast(:trace as text)) made
"""
COPIED = (
    "stream_type",
    "stream_id",
    "version",
    "type",
    "schema_version",
    "data",
    "meta",
    "correlation",
    "causation",
    "trace",
)


class Origin(msgspec.Struct, frozen=True):
    """Correlation, causation and trace of an append, stored with every event."""

    correlation: str | None
    causation: str | None
    trace: str | None

    @classmethod
    def here(cls, correlation: str | None, causation: str | None) -> Origin:
        """Take the caller's values, else those of the event being consumed or the job running here."""
        _check_text("correlation", correlation)
        _check_text("causation", causation)
        event, job = current.get(None), current_job.get(None)
        if event is not None:
            name = f"event {event.position}"
            correlation, causation = correlation or event.correlation or name, causation or name
        elif job is not None:
            name = f"job {job.id}"
            correlation, causation = correlation or name, causation or name
        return cls(correlation, causation, telemetry.trace_context())


class ForeignAppender:
    """Appends through connections of other libraries, by the SQL function; needs only the name of the schema."""

    def __init__(self, schema: str, wrap: WrapConnection) -> None:
        self._statement = render(FOREIGN, {"schema": schema})
        self._wrap = wrap

    async def append(
        self, conn: object, stream: str, events: list[EncodedEvent], expect: int | None, by: Origin
    ) -> Appended:
        """Append through an asynchronous connection."""
        through = foreign_connection(self._wrap, conn, is_async=True, verb="append")
        try:
            rows = await cast("Awaitable[Any]", through.run(self._statement, _params(stream, events, expect, by)))
        except Exception as error:
            _translate(error)
        return _appended(rows[0], len(events))

    def append_sync(
        self, conn: object, stream: str, events: list[EncodedEvent], expect: int | None, by: Origin
    ) -> Appended:
        """Append through a synchronous connection."""
        through = foreign_connection(self._wrap, conn, is_async=False, verb="append")
        try:
            rows = through.run(self._statement, _params(stream, events, expect, by))
        except Exception as error:
            _translate(error)
        return _appended(rows[0], len(events))


class Appender:
    """Appends through asyncpg connections."""

    def __init__(
        self, database: Database, pool: Callable[[], Any], types: EventTypes, foreign: ForeignAppender
    ) -> None:
        self._database = database
        self._pool = pool
        self._types = types
        self._foreign = foreign
        self._sql = sql.load("howdah.events", schema=database.schema)

    async def append(
        self,
        stream: str,
        events: object,
        *,
        expect: int | None,
        conn: Any,
        correlation: str | None,
        causation: str | None,
    ) -> Appended:
        """Append to one stream."""
        split_stream(stream)
        check_expect(expect)
        ready, by = self._types.ready(events), Origin.here(correlation, causation)
        if conn is None:
            async with Acquired(self._pool, self._database, "appending") as own:
                return await self._one(own, stream, ready, expect, by)
        if isinstance(conn, Transaction):
            async with conn.use() as native:
                return await self._one(native, stream, ready, expect, by)
        if is_native(conn):
            return await self._one(conn, stream, ready, expect, by)
        return await self._foreign.append(conn, stream, ready, expect, by)

    async def _one(
        self, conn: Any, stream: str, events: list[EncodedEvent], expect: int | None, by: Origin
    ) -> Appended:
        try:
            row = await conn.fetchrow(
                self._sql["append"], stream, _json(events), expect, by.correlation, by.causation, by.trace
            )
        except Exception as error:
            _translate(error)
        return _appended(row, len(events))

    async def append_many(self, streams: Iterable[tuple[str, object]], *, conn: Any) -> int:
        """Append to many streams by COPY, all or nothing; return the last position."""
        if conn is not None and not isinstance(conn, Transaction) and not is_native(conn):
            raise EventError(f"append_many needs a connection of asyncpg, got {type(conn).__name__}; append one by one")
        ready = [(split_stream(stream), self._types.ready(events)) for stream, events in streams]
        if not ready:
            raise NoEvents("no streams were given to append to")
        by = Origin.here(None, None)
        if isinstance(conn, Transaction):
            async with conn.use() as native:
                return await self._many(native, ready, by)
        if conn is not None:
            return await self._many(conn, ready, by)
        for pause in PAUSES:
            try:
                async with Acquired(self._pool, self._database, "appending") as own:
                    return await self._many(own, ready, by)
            except (StreamConflict, asyncpg.DeadlockDetectedError):
                await asyncio.sleep(pause * random.random())  # noqa: S311
        async with Acquired(self._pool, self._database, "appending") as own:
            return await self._many(own, ready, by)

    async def _many(self, conn: Any, streams: Sequence[tuple[tuple[str, str], list[EncodedEvent]]], by: Origin) -> int:
        names = list(dict.fromkeys(name for name, _ in streams))
        try:
            async with conn.transaction():
                heads = await conn.fetch(self._sql["stream_versions"], *columns(names, 2))
                versions = {(row["stream_type"], row["stream_id"]): row["version"] for row in heads}
                lines = _lines(streams, versions, by)
                while chunk := b"".join(islice(lines, CHUNK)):
                    await conn.copy_to_table(
                        "event",
                        schema_name=self._database.schema,
                        source=io.BytesIO(chunk),
                        columns=COPIED,
                        format="text",
                    )
                position = int(await conn.fetchval(self._sql["last_position"]))
        except Exception as error:
            _translate(error)
        telemetry.emit("log.append", events=sum(len(events) for _, events in streams))
        return position


def check_expect(expect: object) -> None:
    """Raise if ``expect`` cannot be the version of a stream."""
    if expect is not None and (not isinstance(expect, int) or isinstance(expect, bool) or not 0 <= expect < 2**63):
        raise EventError(f"expect is None for any version, 0 for a new stream, or the exact version; got {expect!r}")


def _check_text(what: str, text: object) -> None:
    if text is not None and (not isinstance(text, str) or not text.isprintable()):
        raise EventError(f"{what} must be printable text, got {text!r}")


def _lines(
    streams: Sequence[tuple[tuple[str, str], list[EncodedEvent]]], versions: dict[tuple[str, str], int], by: Origin
) -> Iterator[bytes]:
    tail = b"\t".join(map(copy_field, (by.correlation, by.causation, by.trace)))
    for name, events in streams:
        head = b"\t".join(map(copy_field, name))
        for event in events:
            versions[name] += 1
            meta = bytes(event.meta) if event.meta is not None else None
            yield b"%b\t%d\t%b\t%d\t%b\t%b\t%b\n" % (
                head,
                versions[name],
                copy_field(event.type),
                event.version,
                copy_field(bytes(event.data)),
                copy_field(meta),
                tail,
            )


def _json(events: list[EncodedEvent]) -> str:
    return msgspec.json.encode(events).decode()


def _params(stream: str, events: list[EncodedEvent], expect: int | None, by: Origin) -> dict[str, Any]:
    return {"stream": stream, "events": _json(events), "expect": expect, **msgspec.structs.asdict(by)}


def _appended(row: Sequence[Any], events: int) -> Appended:
    telemetry.emit("log.append", events=events)
    return Appended(int(row[0]), int(row[1]))


def _translate(error: Exception) -> NoReturn:
    """Raise the Howdah error for a database error, whichever library raised it."""
    match sqlstate(error):
        case "HD409":
            raise StreamConflict(f"{_first_line(error)}; read the stream again and decide anew") from error
        case "23505" if "event_stream" in str(error):
            raise StreamConflict("another transaction appended to one of these streams meanwhile; try again") from error
        case "HD204":
            raise NoEvents(_first_line(error)) from error
    raise error


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "orig", None) or error)
    at = text.find("howdah: ")
    return text[at + len("howdah: ") if at >= 0 else 0 :].splitlines()[0]
