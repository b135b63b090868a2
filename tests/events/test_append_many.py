"""Append to many streams by COPY: all or nothing, in the order given."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from howdah import EventError, NewEvent, NoEvents, StreamConflict, telemetry
from howdah.events.append import CHUNK

pytestmark = pytest.mark.anyio

STRANGE = 'tab\tline\nreturn\rback\\slash \\N \\. quote" brace{ é ✓ 🐘'


class Undo(Exception):
    """Raised inside a transaction to roll it back."""


def paid(amount: Any) -> NewEvent:
    return NewEvent(type="Paid", data={"amount": amount})


async def test_events_keep_the_order_they_were_given_in(app, written):
    await app.log.append("Order-1", paid(0))
    last = await app.log.append_many(
        [("Order-2", paid(1)), ("Order-1", [paid(2), paid(3)]), ("Order-2", paid(4)), ("Order-3", paid(5))]
    )
    assert await written("stream_id, version, data ->> 'amount'") == [
        ("1", 1, "0"),
        ("2", 1, "1"),
        ("1", 2, "2"),
        ("1", 3, "3"),
        ("2", 2, "4"),
        ("3", 1, "5"),
    ]
    assert await written("max(position)  over ()") == [(last,)] * 6
    assert (await app.log.append("Order-1", paid(6), expect=3)).version == 4


async def test_it_writes_what_append_writes(app, written):
    events = [
        NewEvent(type="Odd " + STRANGE[-5:], data={"t": STRANGE}, meta={"m": STRANGE}, version=7),
        {"type": "Bare"},
        NewEvent(type="Void", data=None),
        NewEvent(type="List", data=[1, 1.5, None, True]),
    ]
    await app.log.append("Odd\\stream-a b\\N", events)
    await app.log.append_many([("Odd\\stream-b\\.", events)])
    columns = "version, type, schema_version, data::text, meta::text, correlation, causation, trace"
    rows = await written(columns)
    assert rows[:4] == rows[4:]
    assert json.loads(rows[0][3]) == {"t": STRANGE}
    assert next(event.data for event in await app.log.stream("Odd\\stream-b\\.")) == {"t": STRANGE}


async def test_twenty_thousand_events(app, conn):
    """More than one chunk, so more than one COPY, in one transaction."""
    assert CHUNK < 20_000
    heard = []
    stop = telemetry.subscribe(lambda name, facts: heard.append(facts.get("events")) if name == "log.append" else None)
    last = await app.log.append_many((f"Order-{n % 700}", paid(n)) for n in range(20_000))
    stop()
    assert heard == [20_000]
    row = await conn.fetchrow(
        "select count(*), max(position), count(distinct stream_id), count(distinct xmin::text) from howdah.event"
    )
    assert tuple(row) == (20_000, last, 700, 1)
    assert await conn.fetchval("select count(*) from howdah.event where (data ->> 'amount')::int <> position - 1") == 0
    wrong = """
        select count(*) from (
            select version, row_number() over (partition by stream_type, stream_id order by position) as place
            from howdah.event) t
        where version <> place"""
    assert await conn.fetchval(wrong) == 0


async def test_it_is_part_of_the_callers_transaction(app, connect, written):
    mine = await connect()
    with suppress(Undo):
        async with mine.transaction():
            await app.log.append_many([("Order-1", paid(1))], conn=mine)
            raise Undo
    assert await written() == []
    async with mine.transaction():
        await app.log.append("Order-1", paid(1), conn=mine)
        await app.log.append_many([("Order-1", [paid(2), paid(3)])], conn=mine)
        assert await written() == []
    assert [version for (version,) in await written("version")] == [1, 2, 3]


async def test_the_callers_codecs_do_not_matter(app, connect, written):
    mine = await connect()
    for name in ("json", "jsonb"):
        await mine.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    await mine.set_type_codec("text", schema="pg_catalog", encoder=lambda text: text + "!", decoder=str, format="text")
    await app.log.append_many([("Order-1", paid(1))], conn=mine)
    await mine.reset_type_codec("text", schema="pg_catalog")
    await app.log.append("Order-1", paid(2), conn=mine)
    assert await written("version, data ->> 'amount'") == [(1, "1"), (2, "2")]


async def test_a_conflict_in_the_callers_transaction_is_told_and_leaves_it_usable(app, connect, written):
    first, second = await connect(), await connect()
    await first.execute("begin")
    await app.log.append("Order-1", paid(1), conn=first)
    async with second.transaction():
        waiting = asyncio.create_task(app.log.append_many([("Order-2", paid(2)), ("Order-1", paid(3))], conn=second))
        assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        await first.execute("commit")
        with pytest.raises(StreamConflict, match="another transaction appended to one of these streams meanwhile"):
            await waiting
        await app.log.append_many([("Order-2", paid(4)), ("Order-1", paid(5))], conn=second)
    assert await written("stream_id, version, data ->> 'amount'") == [("1", 1, "1"), ("2", 1, "4"), ("1", 2, "5")]


async def test_a_conflict_of_its_own_is_tried_again(app, connect, written):
    first = await connect()
    await first.execute("begin")
    await app.log.append("Order-1", paid(1), conn=first)
    waiting = asyncio.create_task(app.log.append_many([("Order-2", paid(2)), ("Order-1", paid(3))]))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]
    await first.execute("commit")
    await waiting
    assert await written("stream_id, version, data ->> 'amount'") == [("1", 1, "1"), ("2", 1, "2"), ("1", 2, "3")]


async def test_streams_in_opposite_order_end_well(app, written, monkeypatch):
    """Two that wait for each other: the server ends one of them, and that one tries again."""
    monkeypatch.setattr("howdah.events.append.CHUNK", 1)  # they go line by line, so they surely meet in the middle
    there = [(f"Order-{n}", [paid(n)] * 2) for n in range(40)]
    await asyncio.gather(*(app.log.append_many(streams) for streams in (there, there[::-1])))
    rows = sorted(await written("stream_id, version"))
    assert rows == sorted((str(n), version) for n in range(40) for version in range(1, 5))


async def test_bad_input_writes_nothing(app, direct, written):
    with pytest.raises(NoEvents, match="no streams were given"):
        await app.log.append_many([])
    with pytest.raises(NoEvents, match="no events were given"):
        await app.log.append_many([("Order-1", paid(1)), ("Order-2", [])])
    with pytest.raises(EventError, match="a stream is named Type-id"):
        await app.log.append_many([("Order-1", paid(1)), ("Order", paid(1))])
    with pytest.raises(EventError, match="NaN"):
        await app.log.append_many([("Order-1", paid(1)), ("Order-2", paid(float("nan")))])
    with psycopg.connect(direct.dsn) as other, pytest.raises(EventError, match="needs a connection of asyncpg"):
        await app.log.append_many([("Order-1", paid(1))], conn=other)
    assert await written() == []
