"""Read: by stream and by position, forwards and backwards, filtered, page by page, never beyond the frontier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from howdah import ConfigError, EventError, NewEvent
from howdah.events.read import LARGEST_PAGE

pytestmark = pytest.mark.anyio


def some(type: str, *numbers: int) -> list[NewEvent]:
    return [NewEvent(type=type, data={"n": n}, meta={"by": "me"}) for n in numbers]


@pytest.fixture
async def filled(app):
    """Two orders and a customer, in each other's way: positions 1 to 9."""
    await app.log.append("Order-1", some("Placed", 1))
    await app.log.append("Order-2", some("Placed", 2))
    await app.log.append("Customer-1", some("Joined", 3))
    await app.log.append("Order-1", [*some("Paid", 4, 5), *some("Sent", 6)], correlation="c", causation="e")
    await app.log.append("Order-2", some("Paid", 7))
    await app.log.append("Customer-1", some("Left", 8))
    await app.log.append("Order-1", some("Closed", 9))


def numbers(events):
    return [event.data["n"] for event in events]


async def test_an_event_as_it_is_read(app, filled):
    event = (await app.log.stream("Order-1", after=1, limit=1))[0]
    assert (event.position, event.stream, event.stream_type, event.stream_id) == (4, "Order-1", "Order", "1")
    assert (event.version, event.type, event.schema_version) == (2, "Paid", 1)
    assert (event.data, event.meta, event.correlation, event.causation) == ({"n": 4}, {"by": "me"}, "c", "e")
    assert event.trace is None
    assert timedelta(0) <= datetime.now(UTC) - event.at < timedelta(minutes=1)
    assert repr(event) == "Event(4, 'Order-1', version=2, type='Paid')"
    assert event.data is event.data


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        ({}, [1, 4, 5, 6, 9]),
        ({"backwards": True}, [9, 6, 5, 4, 1]),
        ({"after": 2}, [5, 6, 9]),
        ({"before": 3}, [1, 4]),
        ({"after": 1, "before": 4}, [4, 5]),
        ({"after": 1, "before": 5, "backwards": True, "limit": 2}, [6, 5]),
        ({"limit": 2}, [1, 4]),
        ({"after": 5}, []),
        ({"types": ["Paid"]}, [4, 5]),
        ({"types": ["Paid", "Closed"], "backwards": True}, [9, 5, 4]),
        ({"types": []}, []),
    ],
    ids=str,
)
async def test_a_stream(app, filled, ask, found):
    assert numbers(await app.log.stream("Order-1", **ask)) == found


async def test_a_stream_that_is_not_there(app, filled):
    assert await app.log.stream("Order-3") == []
    assert await app.log.stream("Orde-1") == []


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"backwards": True}, [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        ({"after": 7}, [8, 9]),
        ({"before": 3}, [1, 2]),
        ({"after": 3, "before": 6, "backwards": True}, [5, 4]),
        ({"limit": 3}, [1, 2, 3]),
        ({"limit": 3, "backwards": True}, [9, 8, 7]),
        ({"before": 10**18}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"only": ["Customer"]}, [3, 8]),
        ({"only": ["Customer", "Order"], "after": 7}, [8, 9]),
        ({"only": ["Nobody"]}, []),
        ({"types": ["Placed", "Left"]}, [1, 2, 8]),
        ({"only": ["Order"], "types": ["Placed", "Left"], "backwards": True}, [2, 1]),
    ],
    ids=str,
)
async def test_the_whole_log(app, filled, ask, found):
    assert numbers(await app.log.read(**ask)) == found


async def test_pages_add_up_to_the_whole(app):
    await app.log.append_many((f"Order-{n % 7}", some("Placed", n)) for n in range(1000))
    seen, after = [], 0
    while page := await app.log.read(after=after, limit=64):
        seen += numbers(page)
        after = page[-1].position
    assert seen == list(range(1000))
    back, before = [], None
    while page := await app.log.read(before=before, limit=64, backwards=True):
        back += numbers(page)
        before = page[-1].position
    assert back == seen[::-1]


async def test_a_reader_stops_at_an_open_append(app, connect):
    mine = await connect()
    await app.log.append("Order-1", some("Placed", 1))
    await mine.execute("begin")
    await app.log.append("Order-2", some("Placed", 2), conn=mine)
    await app.log.append("Order-3", some("Placed", 3))
    assert numbers(await app.log.read()) == [1]
    assert numbers(await app.log.read(backwards=True)) == [1]
    assert numbers(await app.log.read(before=100)) == [1]
    assert tuple(await app.log.frontier()) == (3, 1, True)
    assert numbers(await app.log.stream("Order-3")) == [3], "a stream is in order by itself"
    await mine.execute("commit")
    assert numbers(await app.log.read()) == [1, 2, 3]
    assert tuple(await app.log.frontier()) == (3, 3, False)


async def test_what_was_rolled_back_leaves_a_hole_and_no_more(app, connect):
    mine = await connect()
    await mine.execute("begin")
    await app.log.append("Order-2", some("Placed", 2), conn=mine)
    await app.log.append("Order-3", some("Placed", 3))
    await mine.execute("rollback")
    assert [(event.position, event.data["n"]) for event in await app.log.read()] == [(2, 3)]
    assert tuple(await app.log.frontier()) == (2, 2, False)


async def test_a_database_that_repeats_reads_by_default(app, conn, database):
    """Our own connections read committed all the same; to others the frontier says that it cannot be trusted."""
    name = await conn.fetchval("select current_database()")
    await conn.execute(f"alter database \"{name}\" set default_transaction_isolation = 'repeatable read'")
    await app.log.append("Order-1", some("Placed", 1))
    assert [event.position for event in await app.log.read()] == [1]
    other = await asyncpg.connect(database.dsn, statement_cache_size=0)
    with pytest.raises(asyncpg.PostgresError, match="the frontier needs READ COMMITTED"):
        await other.fetchval("select howdah.frontier()")
    await other.close()


@pytest.mark.parametrize("limit", [0, -1, LARGEST_PAGE + 1])
async def test_a_page_has_bounds(app, limit):
    with pytest.raises(EventError, match="limit must be from 1 to"):
        await app.log.read(limit=limit)
    with pytest.raises(EventError, match="limit must be from 1 to"):
        await app.log.stream("Order-1", limit=limit)


async def test_a_single_name_is_no_list(app):
    with pytest.raises(ConfigError, match="give a list of types"):
        await app.log.read(types="Placed")
    with pytest.raises(ConfigError, match="give a list of types"):
        await app.log.stream("Order-1", types=dict)
    with pytest.raises(EventError, match="give a list of names"):
        await app.log.read(only="Order")
