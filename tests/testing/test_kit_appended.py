"""The test kit: asserting what was appended."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from howdah import ArgumentError, ConfigError, EventError, Howdah, Transaction
from howdah.testing import assert_appended, assert_appended_sync, drain, refute_appended, refute_appended_sync
from kit.node import drain as work

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(app: Howdah) -> Howdah:
    app.event(Placed)
    app.event(name="order paid")(Paid)
    return app


@dataclass
class Placed:
    total: int
    lang: str = "en"


class Paid(msgspec.Struct, rename="camel"):
    by_whom: str


async def test_an_event_is_found_by_what_is_said_of_it(app):
    await app.log.append("Order-1", [Placed(5), Placed(7, lang="de")])
    await app.log.append("Order-2", [Paid("ann"), {"type": "Left", "data": {"why": ["bored"], "at": None}}])

    assert [event.position for event in await assert_appended(app)] == [1, 2, 3, 4]
    assert [event.version for event in await assert_appended(app, stream="Order-1", count=2)] == [1, 2]
    for expected in (
        {"data": Placed(7, "de")},
        {"type": Placed, "data": {"total": 7}},
        {"type": "Placed", "data": {"lang": "de"}},
        {"stream": "Order-1", "data": {"lang": "de"}},
    ):
        [event] = await assert_appended(app, **expected)
        assert (event.position, event.data) == (2, Placed(7, lang="de"))
    for expected in (
        {"type": Paid},
        {"type": "order paid"},
        {"data": Paid("ann")},
        {"type": Paid, "data": {"byWhom": "ann"}},
    ):
        [event] = await assert_appended(app, **expected, count=1)
        assert event.data == Paid("ann")
    await assert_appended(app, type="Left", data={"why": ["bored"]})
    for expected in (
        {"data": Placed(5, "de")},
        {"type": Placed, "data": {"total": 6}},
        {"type": "placed"},
        {"stream": "Order-2", "type": Placed},
        {"stream": "Order-3"},
        {"type": "Left", "data": {"why": ["tired"]}},
        {"type": "Left", "data": {"nothing": None}},
    ):
        await refute_appended(app, **expected)
        await assert_appended(app, **expected, count=0)


async def test_a_failed_assertion_shows_what_was_appended_instead(app):
    with pytest.raises(AssertionError, match="no event was appended at all"):
        await assert_appended(app, type=Placed)

    await app.log.append("Basket-1", {"type": "Left"})
    await app.log.append("Order-1", Placed(5))
    with pytest.raises(AssertionError) as raised:
        await assert_appended(app, stream="Order-1", type=Placed, data={"total": 6})
    assert str(raised.value).splitlines() == [
        "expected at least 1 of Placed(total=6) in Order-1, found 0",
        "appended instead:",
        '  event 2: Placed(total=5, lang="en") in Order-1, version 1',
        "  event 1: Left() in Basket-1, version 1",
    ]
    with pytest.raises(AssertionError, match=r"expected 2 of Placed\(\), found 1\nfound:\n  event 2"):
        await assert_appended(app, type=Placed, count=2)
    with pytest.raises(AssertionError, match=r"expected 0 of any event\(\) in Order-1, found 1"):
        await refute_appended(app, stream="Order-1")
    await app.log.append_many((f"Order-{n}", Placed(n)) for n in range(100))
    with pytest.raises(AssertionError, match="and 81 more"):
        await refute_appended(app, type=Placed)


async def test_a_misspelt_name_is_an_error_rather_than_an_event_never_found(app):
    for check in (assert_appended, refute_appended):
        with pytest.raises(EventError, match="Type-id"):
            await check(app, stream="Order17")
        with pytest.raises(ArgumentError, match="event Placed has no field 'totl'; it has total, lang"):
            await check(app, type=Placed, data={"totl": 5})
        with pytest.raises(ArgumentError, match="no field 'by_whom'; it has byWhom"):
            await check(app, type=Paid, data={"by_whom": "ann"})
        with pytest.raises(ArgumentError, match="an event class or a dict"):
            await check(app, data=5)
        with pytest.raises(ConfigError, match="class or its name"):
            await check(app, type=5)


async def test_an_open_transaction_is_looked_into_through_its_connection(app, conn, connect_json):
    async with conn.transaction():
        await app.log.append("Order-1", Placed(5), conn=conn)
        [event] = await assert_appended(conn, stream="Order-1", type="Placed", data={"total": 5})
        assert event.data == {"total": 5, "lang": "en"}
        await refute_appended(app, stream="Order-1")
    await assert_appended(app, stream="Order-1")
    await assert_appended(connect_json, data={"total": 5})
    with pytest.raises(ConfigError, match="a connection of asyncpg"):
        await assert_appended("postgresql://…", stream="Order-1")


@pytest.fixture
async def connect_json(direct):
    """A connection that makes objects of JSON, as many applications have them."""
    conn = await direct.connect("json")
    await conn.set_type_codec("json", schema="pg_catalog", encoder=str, decoder=msgspec.json.decode)
    yield conn
    await conn.close()


async def test_a_handler_can_look_into_its_own_transaction(app):
    found: list[int] = []

    @app.task(transactional=True)
    async def place(tx: Transaction) -> None:
        await app.log.append("Order-1", Placed(5), conn=tx)
        found.append(len(await assert_appended(tx, type=Placed)))

    await place.enqueue()
    await work(app)
    assert found == [1]


async def test_events_that_wait_for_an_open_append_are_found(app, conn):
    """They are committed, although no consumer may read them yet."""
    async with conn.transaction():
        await app.log.append("Order-1", Placed(1), conn=conn)
        await app.log.append("Order-2", Placed(2))
        await assert_appended(app, data=Placed(2), count=1)
        assert await app.log.read() == []


async def test_a_schema_of_another_name_is_looked_into(direct):
    other = Howdah(direct.dsn, schema="elsewhere")
    await other.migrate()
    other.consumer("orders")(_ignore)
    await other.log.append("Order-1", Placed(1))
    await assert_appended(other, data=Placed(1))
    assert (await drain(other)).consumed == 1
    await other.close()


async def _ignore(event): ...


async def test_the_synchronous_calls_refuse_to_hold_up_a_loop(app):
    for check in (assert_appended_sync, refute_appended_sync):
        with pytest.raises(ConfigError, match="await"):
            check(app, stream="Order-1")
