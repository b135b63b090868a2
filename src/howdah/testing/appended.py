"""Assert that events were appended, or were not; a failure shows what was appended instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from howdah.app import Howdah
from howdah.arguments import LARGEST, encode
from howdah.contrib import is_native
from howdah.errors import ArgumentError, ConfigError
from howdah.events.event import Event, EventTypes, events_of, split_stream
from howdah.postgres import sql
from howdah.store import Transaction
from howdah.sync_bridge import reject_in_loop, run_in_thread
from howdah.testing.assertions import call

MAX_SEARCHED = 10_000
"""Maximum number of events that are searched, newest first."""
MAX_SHOWN = 20


async def assert_appended(
    app: Any, *, stream: str | None = None, type: type | str | None = None, data: Any = None, count: int | None = None
) -> list[Event]:
    """Assert that such an event was appended, and return all of them, oldest first.

    ``app`` may be a connection of asyncpg or a Transaction instead, to see what is not committed yet. ``data``: an
    object of an event class, or a dict; fields it does not name are not compared. ``count``: the exact number.
    """
    __tracebackhide__ = True
    wanted = _Wanted.of(app, stream, type, data)
    found, others = await _find(app, wanted)
    if len(found) == count or (found and count is None):
        return found
    raise AssertionError(_message(wanted, found, others, count))


async def refute_appended(
    app: Any, *, stream: str | None = None, type: type | str | None = None, data: Any = None
) -> None:
    """Assert that no such event was appended."""
    __tracebackhide__ = True
    wanted = _Wanted.of(app, stream, type, data)
    found, others = await _find(app, wanted)
    if found:
        raise AssertionError(_message(wanted, found, others, 0))


def assert_appended_sync(
    app: Howdah,
    *,
    stream: str | None = None,
    type: type | str | None = None,
    data: Any = None,
    count: int | None = None,
) -> list[Event]:
    """:func:`assert_appended` for synchronous tests."""
    __tracebackhide__ = True
    reject_in_loop("await assert_appended(…) instead")
    return run_in_thread(assert_appended(app, stream=stream, type=type, data=data, count=count))


def refute_appended_sync(
    app: Howdah, *, stream: str | None = None, type: type | str | None = None, data: Any = None
) -> None:
    """:func:`refute_appended` for synchronous tests."""
    __tracebackhide__ = True
    reject_in_loop("await refute_appended(…) instead")
    run_in_thread(refute_appended(app, stream=stream, type=type, data=data))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The expected event."""

    stream: str | None
    type: str | None
    data: dict[str, Any]

    @classmethod
    def of(cls, app: Any, stream: str | None, type: Any, data: Any) -> _Wanted:
        if stream is not None:
            split_stream(stream)
        record = _is_record(data)
        if type is None and record:
            type = data.__class__
        _check_fields(type, data)
        if data is not None and not record and not isinstance(data, Mapping):
            raise ArgumentError(f"data takes an object of an event class or a dict, got {data!r}")
        name = None if type is None else _types(app).name(type)
        plain = {} if data is None else msgspec.json.decode(encode(data, what="data"), type=dict[str, Any])
        return cls(stream=stream, type=name, data=plain)

    def matches(self, event: Event) -> bool:
        if self.stream not in (None, event.stream) or self.type not in (None, event.type):
            return False
        written = msgspec.json.decode(event.data_json)
        if not isinstance(written, dict):
            return not self.data
        return all(name in written and written[name] == value for name, value in self.data.items())

    def __str__(self) -> str:
        return call(self.type or "any event", self.data) + (f" in {self.stream}" if self.stream else "")


def _is_record(data: Any) -> bool:
    return isinstance(data, msgspec.Struct) or (dataclasses.is_dataclass(data) and not isinstance(data, type))


def _check_fields(cls: Any, data: Any) -> None:
    """Reject fields the class does not have: a misspelt field would never match."""
    if not isinstance(cls, type) or not isinstance(data, Mapping):
        return
    shape = inspect.type_info(cls)
    if isinstance(shape, inspect.StructType | inspect.DataclassType):
        known = [field.encode_name for field in shape.fields]
        for name in data:
            if name not in known:
                raise ArgumentError(f"event {cls.__name__} has no field {name!r}; it has {', '.join(known)}")


def _types(app: Any) -> EventTypes:
    return app.types if isinstance(app, Howdah) else EventTypes(LARGEST)


async def _find(app: Any, wanted: _Wanted) -> tuple[list[Event], list[Event]]:
    """Return the events that match, and the newest of the others."""
    if isinstance(app, Howdah):
        conn = await app.database.connect("look")
        try:
            return await _search(conn, app.database.schema, app.types, wanted)
        finally:
            conn.terminate()
    if isinstance(app, Transaction):
        async with app.use() as conn:
            return await _search(conn, "howdah", _types(app), wanted)
    if is_native(app):
        return await _search(app, "howdah", _types(app), wanted)
    raise ConfigError(f"give the app, a connection of asyncpg or a Transaction, got {type(app).__name__}")


async def _search(conn: Any, schema: str, types: EventTypes, wanted: _Wanted) -> tuple[list[Event], list[Event]]:
    find = sql.load("howdah.testing", schema=schema)["appended"]
    kind, id = split_stream(wanted.stream) if wanted.stream else (None, None)
    near = _events(await conn.fetch(find, kind, id, wanted.type, MAX_SEARCHED), types)
    every = _events(await conn.fetch(find, None, None, None, MAX_SHOWN), types)
    found = [event for event in near if wanted.matches(event)]
    seen = {event.position for event in near}
    others = [event for event in near if not wanted.matches(event)][-MAX_SHOWN:]
    return found, others + [event for event in every if event.position not in seen]


def _events(rows: Any, types: EventTypes) -> list[Event]:
    """Return the events, oldest first. JSON is read as text, independently of the codecs of the connection."""
    read = [{**row, "data": row["data"].encode(), "meta": row["meta"] and row["meta"].encode()} for row in rows]
    return events_of([list(row.values()) for row in read], types)[::-1]


def _message(wanted: _Wanted, found: list[Event], others: list[Event], count: int | None) -> str:
    number = "at least 1" if count is None else str(count)
    lines = [f"expected {number} of {wanted}, found {len(found)}"]
    if found:
        lines += ["found:", *_listed(found)]
    if others:
        lines += ["other events:" if found else "appended instead:", *_listed(others)]
    elif not found:
        lines.append("no event was appended at all; was the transaction committed?")
    return "\n".join(lines)


def _listed(events: list[Event]) -> list[str]:
    more = len(events) - MAX_SHOWN
    return [f"  {_line(event)}" for event in events[:MAX_SHOWN]] + ([f"  … and {more} more"] if more > 0 else [])


def _line(event: Event) -> str:
    written = msgspec.json.decode(event.data_json)
    return f"event {event.position}: {call(event.type, written)} in {event.stream}, version {event.version}"
