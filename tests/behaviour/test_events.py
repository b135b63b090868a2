"""Events: what a consumer is given, and what becomes of what it does with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from howdah import Event, Howdah, HowdahError, Transaction, current_event
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio
NOTE = "insert into seen (position, stream, type) values ($1, $2, $3)"


@pytest.fixture
async def seen(conn):
    """A read model, and what is in it."""
    await conn.execute("create table seen (n bigserial, position bigint, stream text, type text)")

    async def seen(column: str = "stream") -> list[Any]:
        return [row[0] for row in await conn.fetch(f"select {column} from seen order by n")]

    return seen


async def note(event: Event, tx: Transaction) -> None:
    await tx.execute(NOTE, event.position, event.stream, event.type)


async def append(app: Howdah, *streams: str, type: str = "Noted") -> list[int]:
    return [(await app.log.append(stream, {"type": type})).position for stream in streams]


async def standing(app: Howdah, name: str) -> Any:
    [row] = await app.log.admin.consumers(name)
    return row


async def test_a_function_a_class_and_an_object_can_follow(app, seen):
    handled: list[str] = []

    @app.consumer("function")
    async def function(event, tx):
        await note(event, tx)

    @app.consumer("without tx")
    async def without(event):
        handled.append(f"without {event.stream}")

    @app.consumer("class")
    class Counts:
        def __init__(self):
            self.count = 0

        async def handle(self, event, tx):
            self.count += 1
            handled.append(f"class {self.count} {await tx.fetchval('select 1')}")

    app.consumer("object")(Counts())
    await append(app, "Order-1", "Order-2")
    await drain(app)

    assert await seen() == ["Order-1", "Order-2"]
    assert sorted(handled) == sorted(["without Order-1", "without Order-2", *2 * ["class 1 1", "class 2 1"]])


async def test_a_handler_is_told_everything_about_an_event(app):
    got: list[Event] = []

    @app.event
    @dataclass
    class OrderPlaced:
        total: int

    @app.consumer("orders")
    async def orders(event):
        assert current_event() is event
        got.append(event)

    await app.log.append("Order-17-b", OrderPlaced(5), correlation="basket 3", causation="click")
    await app.log.append("Order-17-b", {"type": "Paid", "data": {"by": "card"}, "meta": {"user": 7}})
    await drain(app)

    first, second = got
    assert (first.stream, first.stream_type, first.stream_id) == ("Order-17-b", "Order", "17-b")
    assert (first.type, first.data, first.version, first.meta) == ("OrderPlaced", OrderPlaced(5), 1, {})
    assert (first.correlation, first.causation) == ("basket 3", "click")
    assert (second.type, second.data, second.version, second.meta) == ("Paid", {"by": "card"}, 2, {"user": 7})
    assert first.position < second.position
    with pytest.raises(HowdahError, match="inside a consumer"):
        current_event()


async def test_a_batch_is_one_call_and_one_transaction(app, conn, seen):
    sizes: list[int] = []

    @app.consumer("batches", batch=3)
    async def batches(events, tx):
        sizes.append(len(events))
        await tx.executemany(
            "insert into seen (position, stream, type) values ($1, $2, pg_current_xact_id()::text)",
            [(event.position, event.stream) for event in events],
        )

    await append(app, *(f"Order-{n}" for n in range(7)))
    await drain(app)

    assert sizes == [3, 3, 1]
    assert await seen() == [f"Order-{n}" for n in range(7)]
    assert await conn.fetchval("select count(distinct type) from seen") == 3


async def test_events_one_by_one_share_the_transaction_of_their_batch(app, conn, seen):
    @app.consumer("single", batch=4)
    async def single(event, tx):
        await tx.execute("insert into seen (stream, type) values ($1, pg_current_xact_id()::text)", event.stream)

    await append(app, *(f"Order-{n}" for n in range(8)))
    await drain(app)

    assert await seen() == [f"Order-{n}" for n in range(8)]
    assert await conn.fetchval("select count(distinct type) from seen") == 2


async def test_the_order_of_every_stream_is_kept(app):
    got: list[tuple[str, int, int]] = []

    @app.consumer("order", batch=7)
    async def order(event):
        got.append((event.stream, event.version, event.position))

    async with node(app):
        await asyncio.gather(*(_appends(app, f"Order-{n}") for n in range(8)))
        await eventually(lambda: _length(got, 120))

    positions = [position for _, _, position in got]
    assert positions == sorted(set(positions))
    for n in range(8):
        assert [version for stream, version, _ in got if stream == f"Order-{n}"] == list(range(1, 16))


async def _appends(app: Howdah, stream: str) -> None:
    for _ in range(5):
        await app.log.append(stream, [{"type": "Noted"}] * 3)


async def _length(items: list[Any], wanted: int) -> bool:
    return len(items) >= wanted


# ---------------------------------------------------------------- what it follows


async def test_the_server_picks_what_is_in_scope_and_the_checkpoint_passes_the_rest(app, seen):
    sizes: list[int] = []

    @app.consumer("scoped", only=["Order", "Basket"], types=["Placed"], batch=5)
    async def scoped(events, tx):
        sizes.append(len(events))
        for event in events:
            await note(event, tx)

    for n in range(10):
        await append(app, f"Other-{n}", *(f"Noise-{n}" for _ in range(5)), type="Placed")
        await append(app, f"Order-{n}", type="Paid")
        await append(app, f"Basket-{n}" if n % 2 else f"Order-{n}", type="Placed")
    [last] = await append(app, "Other-1")
    await drain(app)

    assert sizes == [5, 5], "batches are full: what is out of scope was left out by the server"
    assert await seen() == [f"Basket-{n}" if n % 2 else f"Order-{n}" for n in range(10)]
    assert (await standing(app, "scoped")).position == last


async def test_a_new_consumer_begins_where_it_says(app):
    got: dict[str, list[str]] = {}
    positions = await append(app, "Order-1", "Order-2", "Order-3")
    for name, start in (("all", "beginning"), ("new", "end"), ("some", positions[1])):
        got[name] = _collect(app, name, start=start)
    await drain(app)
    assert got == {"all": ["Order-1", "Order-2", "Order-3"], "new": [], "some": ["Order-3"]}

    await append(app, "Order-4")
    await drain(app)
    assert [each[-1] for each in got.values()] == 3 * ["Order-4"], "where it began no longer matters"
    assert [len(each) for each in got.values()] == [4, 1, 2]


async def test_a_consumer_that_comes_later_reads_the_whole_log(app, database):
    early = _collect(app, "early")
    await append(app, *(f"Order-{n}" for n in range(30)))
    await drain(app)

    later = Howdah(database.dsn)
    late = _collect(later, "late", batch=4)
    async with node(app):
        await drain(later)
    assert late == early == [f"Order-{n}" for n in range(30)]
    await later.close()


def _collect(app: Howdah, name: str, **settings: Any) -> list[str]:
    got: list[str] = []

    @app.consumer(name, **settings)
    async def collect(event):
        got.append(event.stream)

    return got
