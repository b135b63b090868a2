"""Append to one stream: versions, what is written with an event, and in whose transaction."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import msgspec
import psycopg
import pytest

from howdah import Appended, ConfigError, Event, NewEvent, NoEvents, StreamConflict, Transaction, current_job, telemetry
from howdah.events.event import current
from kit.node import drain

pytestmark = pytest.mark.anyio

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Undo(Exception):
    """Raised inside a transaction to roll it back."""


@dataclass
class Placed:
    total: int
    at: datetime | None = None


class Paid(msgspec.Struct):
    amount: int


async def test_a_stream_counts_from_one(app, written):
    assert await app.log.append("Order-17", Placed(5)) == Appended(version=1, position=1)
    assert await app.log.append("Order-17", [Paid(2), Paid(3)]) == Appended(version=3, position=3)
    assert await app.log.append("Order-18", Placed(1)) == Appended(version=1, position=4)
    assert await written() == [
        ("Order-17", 1, "Placed"),
        ("Order-17", 2, "Paid"),
        ("Order-17", 3, "Paid"),
        ("Order-18", 1, "Placed"),
    ]


async def test_the_type_of_a_stream_ends_at_the_first_dash(app, written):
    await app.log.append("Order-17-b-", Placed(5))
    assert await written("stream_type, stream_id") == [("Order", "17-b-")]


async def test_an_event_is_an_object_or_a_dict(app, written):
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    await app.log.append(
        "Order-1",
        [
            Placed(5, moment),
            Paid(2),
            {"type": "Sent"},
            {"type": "Seen", "data": {"by": "é ✓ 🐘"}, "meta": {"ip": "::1"}, "version": 4},
            NewEvent(type="Kept", data=[1, None]),
            NewEvent(type="Void", data=None),
        ],
    )
    rows = [(type, version, json.loads(data)) for type, version, data in await written("type, schema_version, data")]
    assert rows == [
        ("Placed", 1, {"total": 5, "at": "2026-03-01T12:00:00Z"}),
        ("Paid", 1, {"amount": 2}),
        ("Sent", 1, {}),
        ("Seen", 4, {"by": "é ✓ 🐘"}),
        ("Kept", 1, [1, None]),
        ("Void", 1, {}),
    ]
    assert [meta for (meta,) in await written("meta") if meta] == [b'{"ip":"::1"}']


async def test_a_generator_of_events_is_appended_in_its_order(app, written):
    made = await app.log.append("Order-1", (Paid(amount) for amount in range(500)))
    assert made.version == 500
    assert await written("version, (data ->> 'amount')::int") == [(n + 1, n) for n in range(500)]


@pytest.mark.parametrize("expect", [None, 0])
async def test_a_new_stream_may_be_expected(app, expect):
    assert (await app.log.append("Order-1", Paid(1), expect=expect)).version == 1


@pytest.mark.parametrize("expect", [0, 1, 3, 2**63 - 1])
async def test_a_stream_at_another_version_is_a_conflict(app, written, expect):
    await app.log.append("Order-1", [Paid(1), Paid(2)])
    with pytest.raises(StreamConflict, match=rf"stream Order-1 is at version 2, not {expect}; read the stream again"):
        await app.log.append("Order-1", Paid(3), expect=expect)
    assert len(await written()) == 2
    assert (await app.log.append("Order-1", Paid(3), expect=2)).version == 3


async def test_an_append_of_nothing_is_refused(app, conn):
    for nothing in ([], (), iter(())):
        with pytest.raises(NoEvents, match="no events were given"):
            await app.log.append("Order-1", nothing)
    with pytest.raises(asyncpg.PostgresError, match="no events were given") as refused:
        await conn.fetchval("select howdah.append('Order-1', '[]')")
    assert refused.value.sqlstate == "HD204"


async def test_correlation_and_causation_are_what_the_caller_says(app, written):
    await app.log.append("Order-1", [Paid(1), Paid(2)], correlation="request 9", causation="click")
    await app.log.append("Order-1", Paid(3))
    assert await written("correlation, causation") == [("request 9", "click")] * 2 + [(None, None)]


async def test_an_append_in_a_consumer_names_the_event_it_comes_from(app, written):
    await app.log.append("Order-1", Paid(1))
    await app.log.append("Order-1", Paid(2), correlation="request 9")
    for cause in await app.log.stream("Order-1"):
        token = current.set(cause)
        await app.log.append("Mail-1", {"type": "Sent"})
        current.reset(token)
    assert (await written("correlation, causation"))[2:] == [("event 1", "event 1"), ("request 9", "event 2")]


async def test_an_append_is_part_of_the_trace_of_its_caller(app, written):
    telemetry.set_trace_context(lambda: TRACE)
    try:
        await app.log.append("Order-1", Paid(1))
        await app.log.append_many([("Order-2", Paid(1))])
    finally:
        telemetry.set_trace_context(None)
    assert await written("trace") == [(TRACE,), (TRACE,)]


async def test_an_append_is_told(app):
    heard = []
    stop = telemetry.subscribe(lambda name, facts: heard.append((name, facts)))
    try:
        await app.log.append("Order-1", [Paid(1), Paid(2)])
        with suppress(StreamConflict):
            await app.log.append("Order-1", Paid(1), expect=0)
    finally:
        stop()
    assert [facts for name, facts in heard if name == "log.append"] == [{"events": 2}]


# ---------------------------------------------------------------- in whose transaction


async def test_an_append_is_part_of_the_callers_transaction(app, connect, written):
    mine = await connect()
    with suppress(Undo):
        async with mine.transaction():
            assert (await app.log.append("Order-1", Paid(1), conn=mine)).version == 1
            assert (await app.log.append("Order-1", Paid(2), conn=mine, expect=1)).version == 2
            raise Undo
    assert await written() == []
    async with mine.transaction():
        await app.log.append("Order-1", Paid(1), conn=mine)
        assert await written() == []
    assert await written("version, data ->> 'amount'") == [(1, "1")]


async def test_a_conflict_in_a_savepoint_leaves_the_transaction_usable(app, connect, written):
    mine = await connect()
    async with mine.transaction():
        await app.log.append("Order-1", Paid(1), conn=mine)
        with pytest.raises(StreamConflict):
            async with mine.transaction():
                await app.log.append("Order-1", Paid(2), conn=mine, expect=0)
        await app.log.append("Order-1", Paid(3), conn=mine, expect=1)
    assert await written("version, data ->> 'amount'") == [(1, "1"), (2, "3")]


async def test_a_transactional_task_appends_in_its_own_commit(app, conn, written):
    @app.task(transactional=True, max_attempts=1)
    async def pay(tx: Transaction, amount: int) -> None:
        await app.log.append("Order-1", Paid(amount), conn=tx)
        await app.log.append_many([("Order-2", Paid(amount))], conn=tx)
        assert await conn.fetchval("select count(*) from howdah.event where data ->> 'amount' = $1", str(amount)) == 0
        if amount == 13:
            raise Undo

    good, bad = await pay.enqueue(7), await pay.enqueue(13)
    await drain(app, slots=1)
    name = f"job {good.id}"
    assert bad.id != good.id
    assert await written("stream_id, data ->> 'amount', correlation, causation") == [
        ("1", "7", name, name),
        ("2", "7", name, name),
    ]


async def test_a_synchronous_task_appends(app, written):
    @app.task
    def pay(amount: int) -> None:
        app.log.append_sync("Order-1", Paid(amount), expect=0)
        assert current_job().attempt == 1

    made = await pay.enqueue(7)
    await drain(app)
    assert await written("version, causation") == [(1, f"job {made.id}")]


async def test_synchronous_code_appends(app, direct, written):
    def run() -> None:
        assert app.log.append_sync("Order-1", [Paid(1), Paid(2)], correlation="c").version == 2
        with pytest.raises(StreamConflict, match="is at version 2"):
            app.log.append_sync("Order-1", Paid(1), expect=1)
        with psycopg.connect(direct.dsn) as mine:
            assert app.log.append_sync("Order-1", Paid(3), expect=2, conn=mine) == Appended(3, 3)
            mine.rollback()
            made = app.log.append_sync("Order-1", Paid(4), expect=2, conn=mine, causation="click")
            mine.commit()
            assert made == Appended(3, 4)
            with pytest.raises(StreamConflict, match=r"^stream Order-1 is at version 3, not 0; read"):
                app.log.append_sync("Order-1", Paid(5), expect=0, conn=mine)

    await asyncio.to_thread(run)
    assert await written("data ->> 'amount', correlation, causation") == [
        ("1", "c", None),
        ("2", "c", None),
        ("4", None, "click"),
    ]


async def test_the_wrong_kind_of_connection_is_named(app, connect, direct):
    mine = await connect()
    with pytest.raises(ConfigError, match="asynchronous; await append"):
        app.log.append_sync("Order-1", Paid(1), conn=mine)
    with psycopg.connect(direct.dsn) as other, pytest.raises(ConfigError, match="synchronous; call append_sync"):
        await app.log.append("Order-1", Paid(1), conn=other)
    with pytest.raises(ConfigError, match=r"cannot append through a builtins\.object"):
        await app.log.append("Order-1", Paid(1), conn=object())


async def test_any_language_appends_by_the_function(app, direct):
    with psycopg.connect(direct.dsn) as mine:
        one = '{"type": "Placed", "data": {"total": 5}}'
        assert mine.execute("select version, position from howdah.append('Order-1', %s)", (one,)).fetchone() == (1, 1)
        two = '[{"type": "Paid", "meta": {"k": [1]}, "version": 3}, {"type": "Sent"}]'
        statement = "select version, position from howdah.append('Order-1', %s, 1, 'why', 'cause', %s)"
        assert mine.execute(statement, (two, TRACE)).fetchone() == (3, 3)
        with pytest.raises(psycopg.Error, match="howdah: stream Order-1 is at version 3, not 1") as conflict:
            mine.execute(statement, (two, TRACE))
        assert conflict.value.sqlstate == "HD409"
        mine.rollback()
        mine.execute("select howdah.append('Order-1', %s)", (one,))
        mine.commit()
    [event] = await app.log.stream("Order-1")
    assert isinstance(event, Event)
    assert (event.version, event.type, event.data) == (1, "Placed", {"total": 5})


# ---------------------------------------------------------------- many at once


async def test_appends_to_one_stream_take_turns(app, conn, written):
    """Versions without a hole, positions rising with them, whoever comes when."""
    made = await asyncio.gather(*(app.log.append("Order-1", [Paid(n)] * (1 + n % 3)) for n in range(60)))
    rows = await written("version")
    assert rows == [(n + 1,) for n in range(sum(1 + n % 3 for n in range(60)))]
    ends = dict(await conn.fetch("select version, position from howdah.event"))
    assert all(ends[version] == position for version, position in made)


async def test_of_many_who_expect_the_same_version_one_appends(app, written):
    made = await asyncio.gather(
        *(app.log.append("Order-1", Paid(n), expect=0) for n in range(20)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in made) == ["Appended"] + ["StreamConflict"] * 19
    assert len(await written()) == 1


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_the_second_waits_for_the_first(app, connect, ends):
    first = await connect()
    await first.execute("begin")
    await app.log.append("Order-1", [Paid(1), Paid(2)], conn=first)
    second = asyncio.create_task(app.log.append("Order-1", Paid(3)))
    strict = asyncio.create_task(app.log.append("Order-1", Paid(4), expect=0))
    other = await app.log.append("Order-2", Paid(5))
    done, _ = await asyncio.wait([second, strict], timeout=0.2)
    assert not done
    await first.execute(ends)
    if ends == "commit":
        assert (await second).version == 3
        with pytest.raises(StreamConflict, match=r"moved past version 0|is at version"):
            await strict
    else:
        made = await asyncio.gather(second, strict, return_exceptions=True)
        assert isinstance(made[0], Appended)
        assert made[0].version == 1 + isinstance(made[1], Appended)
    assert other.version == 1
