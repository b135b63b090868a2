"""What cannot be appended is refused with a reason, and nothing is written; what was appended never changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from howdah import ConfigError, EventError, Howdah, NewEvent

pytestmark = pytest.mark.anyio


@dataclass
class Note:
    text: Any
    more: list[Any] = field(default_factory=list)


class Plain:
    """No record, so no event."""


STREAMS = [
    "",
    "-",
    "Order",
    "Order-",
    "-17",
    "O" * 101 + "-1",
    "O-" + "1" * 301,
    "O-a\0b",
    "O-a\nb",
    "O-\ud800",
    17,
    None,
]


@pytest.mark.parametrize("stream", STREAMS, ids=repr)
async def test_a_bad_name_of_a_stream(app, written, stream):
    with pytest.raises(EventError, match="a stream is named Type-id"):
        await app.log.append(stream, Note("x"))
    with pytest.raises(EventError, match="a stream is named Type-id"):
        app.log.append_sync(stream, Note("x"))
    with pytest.raises(EventError, match="a stream is named Type-id"):
        await app.log.stream(stream)
    assert await written() == []


@pytest.mark.parametrize("stream", ["O" * 100 + "-" + "1" * 300, "O-" + "é" * 300, "a b-c:d/e?f=%s&'\";--", "🐘-1"])
async def test_an_odd_but_good_name_of_a_stream(app, written, stream):
    await app.log.append(stream, Note("x"))
    await app.log.append_many([(stream, Note("y"))])
    assert await written("version") == [(1,), (2,)]
    assert {event.stream for event in await app.log.stream(stream)} == {stream}


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Note(float("nan")), "NaN or infinity"),
        (Note([{"deep": float("-inf")}]), "NaN or infinity"),
        (Note("a\0b"), "NUL character"),
        ({"type": "X", "data": {"k\0": 1}}, "NUL character"),
        (Note("\ud800"), "lone surrogate"),
        ({"type": "X", "data": {"\udfff": 1}}, "lone surrogate"),
        (Note("x" * 2000), "2,0.. bytes of JSON, 1,000 are allowed"),
        (Note(Plain()), "a Plain has no JSON form"),
        (Note(json.loads("[" * 150 + "]" * 150)), "nested 151 levels deep, 100 are allowed"),
        ({"type": "X", "meta": {"n": float("nan")}}, "the meta of event X holds NaN"),
        ({"type": "X", "meta": {"n": "\0"}}, "the meta of event X holds a NUL"),
        ({"type": "X", "meta": {"n": "x" * 2000}}, "the meta of event X is 2,0.. bytes"),
        (Plain(), "Plain cannot be an event"),
        (Note, "type cannot be an event"),
        (None, "NoneType cannot be an event"),
        ("Placed", "str cannot be an event"),
        (17, "int cannot be an event"),
        ([[Note("x")]], "list cannot be an event"),
        ({"data": {}}, "missing required field `type`"),
        ({"type": 5}, "Expected `str`"),
        ({"type": "X", "extra": 1}, "unknown field `extra`"),
        ({"type": "X", "meta": [1]}, r"Expected `object \| null`, got `array`"),
        ({"type": "X", "version": "1"}, "Expected `int"),
    ],
    ids=lambda value: repr(value)[:40].partition(" at 0x")[0],
)
async def test_a_bad_event(database, written, event, why):
    app = Howdah(database.dsn, largest_payload=1000)
    for events in (event, [Note("good"), event]):
        with pytest.raises(EventError, match=why):
            await app.log.append("Order-1", events)
    with pytest.raises(EventError, match=why):
        await app.log.append_many([("Order-2", Note("good")), ("Order-1", event)])
    assert await written() == []
    await app.close()


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (NewEvent(type=""), "event type must be 1 to"),
        (NewEvent(type="a\nb"), "event type must be 1 to"),
        (NewEvent(type="x" * 1000), "event type must be 1 to"),
        (NewEvent(type=None), "event type must be 1 to"),  # type: ignore[arg-type]
        (NewEvent(type="X", version=0), "schema version of an event must be an integer of at least 1"),
        (NewEvent(type="X", version=2**31), "schema version of an event must be an integer of at least 1"),
        (NewEvent(type="X", version=True), "schema version of an event must be an integer of at least 1"),
    ],
    ids=lambda value: repr(value)[:40].partition(" at 0x")[0],
)
async def test_a_bad_type_or_schema_version(app, written, event, why):
    with pytest.raises(ConfigError, match=why):
        await app.log.append("Order-1", event)
    assert await written() == []


@pytest.mark.parametrize("expect", [-1, True, "1", 1.0, 2**63], ids=repr)
async def test_a_bad_expectation(app, written, expect):
    with pytest.raises(EventError, match="expect is None for any version, 0 for a new stream"):
        await app.log.append("Order-1", Note("x"), expect=expect)
    with pytest.raises(EventError, match="expect is None for any version, 0 for a new stream"):
        app.log.append_sync("Order-1", Note("x"), expect=expect)
    assert await written() == []


@pytest.mark.parametrize("where", ["correlation", "causation"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800", 17], ids=repr)
async def test_a_bad_origin(app, written, where, text):
    with pytest.raises(EventError, match=where):
        await app.log.append("Order-1", Note("x"), **{where: text})
    assert await written() == []


@pytest.mark.parametrize(
    ("stream", "events", "state"),
    [
        ("Order", '[{"type": "X"}]', "22023"),
        ("-1", '[{"type": "X"}]', "22023"),
        ("Order-", '[{"type": "X"}]', "22023"),
        (None, '[{"type": "X"}]', "22023"),
        ("O" * 101 + "-1", '[{"type": "X"}]', "22023"),
        ("O-" + "1" * 301, '[{"type": "X"}]', "22023"),
        ("O-a\nb", '[{"type": "X"}]', "22023"),
        ("Order-1", "5", "22023"),
        ("Order-1", None, "22023"),
        ("Order-1", '"X"', "22023"),
        ("Order-1", "[1]", "22023"),
        ("Order-1", '[{"type": "X"}, 1]', "22023"),
        ("Order-1", '[{"data": {}}]', "23502"),
        ("Order-1", '[{"type": "X"}, {"data": {}}]', "23502"),
        ("Order-1", '[{"type": "X", "version": "new"}]', "22P02"),
        ("Order-1", '[{"type": "X", "meta": 5}]', "22023"),
        ("Order-1", '{"type": "X", "meta": "who"}', "22023"),
        ("Order-1", '[{"type": "X"}, {"type": "X", "meta": [1]}]', "22023"),
        ("Order-1", r'[{"type": "a\nb"}]', "22023"),
        ("Order-1", r'[{"type": "X"}, {"type": "a\u007fb"}]', "22023"),
        ("Order-1", "[{", "22P02"),
        ("Order-1", "[]", "HD204"),
    ],
)
async def test_the_function_refuses_bad_input_too(conn, written, stream, events, state):
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetchval("select howdah.append($1, $2::text::json)", stream, events)
    assert refused.value.sqlstate == state
    assert await written() == []


async def test_the_function_takes_what_python_writes(conn, written):
    """The control of the refusals above."""
    for events in ('{"type": "X"}', '[{"type": "X y", "meta": null}, {"type": "\u00fc", "meta": {}}]'):
        await conn.fetchval("select howdah.append('Order-1', $1::text::json)", events)
    assert await written("type") == [("X",), ("X y",), ("\u00fc",)]


@pytest.mark.parametrize(
    "statement",
    [
        "update howdah.event set type = 'Y'",
        "update howdah.event set type = 'Y' where false",
        "insert into howdah.event (stream_type, stream_id, version, type, data) values ('Order', '1', 1, 'Y', '{}')"
        " on conflict (stream_type, stream_id, version) do update set type = 'Y'",
        "merge into howdah.event e using (values (1)) v(n) on e.version = v.n when matched then update set type = 'Y'",
    ],
)
async def test_an_event_never_changes(app, conn, written, statement):
    await app.log.append("Order-1", {"type": "X"})
    with pytest.raises(asyncpg.PostgresError, match="the event log is append-only") as refused:
        await conn.execute(statement)
    assert refused.value.sqlstate == "23001"
    assert await written("type") == [("X",)]
