"""Parked events: set aside, listed, tried again, dropped; and failures that are nobody's fault."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from howdah import Backoff, ConfigError, Howdah, Poison
from howdah.events.parked import ParkedEvents
from howdah.postgres import sql
from howdah.redact import describe
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio
AT_ONCE = Backoff(first=0, jitter=0)


@pytest.fixture
async def seen(conn):
    """A read model, and what is in it."""
    await conn.execute("create table seen (n bigserial, version int)")

    async def seen() -> list[int]:
        return [row[0] for row in await conn.fetch("select version from seen order by n")]

    return seen


@pytest.fixture
def bad(app) -> set[int]:
    """The versions on which the consumer ``shaky`` fails."""
    bad: set[int] = set()

    @app.consumer("shaky", on_failure="park", max_failures=2, retry=AT_ONCE)
    async def shaky(event, tx):
        await tx.execute("insert into seen (version) values ($1)", event.version)
        if event.version in bad:
            raise ValueError(f"no {event.version}")

    return bad


async def append(app: Howdah, count: int) -> int:
    return (await app.log.append("Order-1", [{"type": "Noted", "data": {"a": 1}}] * count)).position


async def parked(app: Howdah, count: int) -> list[Any]:
    """Wait until so many events of the consumer are parked and none is wanted; returns them."""

    async def there() -> list[Any]:
        rows = list(await app.log.admin.parked("shaky"))
        return [rows] if len(rows) == count and not any(row.wanted_at for row in rows) else []

    [rows] = await eventually(there)
    return rows


async def test_an_event_is_set_aside_and_the_others_go_on(app, seen, bad):
    bad |= {2, 4}
    last = await append(app, 6)
    async with node(app):
        first, second = await parked(app, 2)
        await app.log.wait_for("shaky", last)

    assert await seen() == [1, 3, 5, 6]
    assert (first.consumer, first.position, first.stream, first.version) == ("shaky", 2, "Order-1", 2)
    assert (first.type, first.data, first.failures, first.wanted_at) == ("Noted", {"a": 1}, 2, None)
    assert (first.error, first.message, second.message) == ("ValueError", "no 2", "no 4")
    assert "in shaky" in first.traceback
    [row] = await app.log.admin.consumers("shaky")
    assert (row.parked, row.position, row.failures, row.error, row.handled) == (2, last, 0, None, 4)


async def test_poison_is_parked_at_once(app, seen):
    tried: list[int] = []

    @app.consumer("shaky", on_failure="park")
    async def shaky(events, tx):
        tried.append(len(events))
        raise Poison("never")

    await append(app, 1)
    await drain(app)
    assert tried == [1]
    [row] = await app.log.admin.parked()
    assert (row.error, row.position) == ("Poison", 1)


async def test_what_is_tried_again_leaves_or_stays(app, seen, bad):
    bad |= {2, 4, 5}
    await append(app, 6)
    async with node(app):
        await parked(app, 3)
        bad.discard(4)
        assert await app.log.admin.retry_parked("shaky") == [2, 4, 5]
        first, second = await parked(app, 2)
        assert (first.position, first.failures, second.position, second.failures) == (2, 3, 5, 3)

        bad.clear()
        assert await app.log.admin.retry_parked("shaky", [5, 4, 77]) == [5]
        await parked(app, 1)
    assert await seen() == [1, 3, 6, 4, 5]
    [row] = await app.log.admin.consumers("shaky")
    assert (row.position, row.failures) == (6, 0), "what is parked does not move the checkpoint"


async def test_a_wish_is_kept_until_a_node_comes(app, seen, bad):
    bad.add(1)
    await append(app, 2)
    async with node(app):
        await parked(app, 1)
    bad.clear()
    await app.log.admin.retry_parked("shaky")
    [row] = await app.log.admin.parked()
    assert row.wanted_at is not None
    await drain(app)
    assert (await seen(), list(await app.log.admin.parked())) == ([2, 1], [])


async def test_parked_events_can_be_dropped(app, seen, bad):
    bad |= {1, 2, 3}
    await append(app, 4)
    async with node(app):
        await parked(app, 3)
    admin = app.log.admin
    assert await admin.drop_parked("shaky", [2, 4]) == [2]
    assert [row.position for row in await admin.parked("shaky", limit=1)] == [1]
    assert [row.position for row in await admin.parked(after=1)] == [3]
    assert await admin.drop_parked("shaky") == [1, 3]
    assert await admin.drop_parked("shaky") == await admin.retry_parked("shaky") == []
    assert await seen() == [4]

    for verb in (admin.drop_parked, admin.retry_parked):
        with pytest.raises(ConfigError, match="no consumer 'shakey'"):
            await verb("shakey")
    with pytest.raises(ConfigError, match="limit must be from 1 to 1000"):
        await admin.parked(limit=1001)


async def test_an_event_that_is_gone_is_still_listed(app, conn, seen, bad):
    bad.add(1)
    await append(app, 1)
    async with node(app):
        await parked(app, 1)
    await conn.execute("delete from howdah.event")
    [row] = await app.log.admin.parked()
    assert (row.position, row.stream, row.data) == (1, None, None)


async def park_again(parked, event, error):
    """Park an event that failed again, without a look at who owns it and whether it is still parked."""
    async with parked._pool.acquire() as conn:
        await conn.execute(parked._sql["park"], *parked._partition.key, event.position, *describe(error), 1)
    return True


@pytest.fixture(params=[True, False], ids=["guarded", "unguarded"])
def guarded(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(ParkedEvents, "_repark", park_again)
    return request.param


async def test_an_event_that_another_node_handled_meanwhile_is_not_parked_again(app, conn, seen, guarded):
    """Its owner tries it for so long that the partition moves, and fails when the next owner is done with it."""
    begun, go, tries = asyncio.Event(), asyncio.Event(), [0]

    @app.consumer("shaky", on_failure="park", max_failures=1, retry=AT_ONCE)
    async def shaky(event, tx):
        tries[0] += 1
        mine = tries[0]
        if mine == 2:
            begun.set()
            await go.wait()
        if mine <= 2:
            raise ValueError(f"try {mine}")
        await tx.execute("insert into seen (version) values ($1)", event.version)

    await append(app, 1)
    async with node(app):
        await parked(app, 1)
        await app.log.admin.retry_parked("shaky")
        await asyncio.wait_for(begun.wait(), 30)
        await conn.execute("update howdah.consumer_partition set epoch = epoch + 1")  # as when it moves away and back
        await conn.execute("delete from howdah.parked")  # the next owner handled it
        await conn.execute("insert into seen (version) values (1)")
        go.set()
        await eventually(lambda: asyncio.sleep(0, tries[0] >= 2))
        last = await append(app, 1)
        await app.log.wait_for("shaky", last, timeout=30)

    assert (list(await app.log.admin.parked()) == []) == guarded
    assert await seen() == [1, 2]


async def test_an_event_that_is_dropped_while_it_is_tried_again_stays_dropped(app, seen, guarded):
    begun, go, tries = asyncio.Event(), asyncio.Event(), [0]

    @app.consumer("shaky", on_failure="park", max_failures=1, retry=AT_ONCE)
    async def shaky(event, tx):
        tries[0] += 1
        if tries[0] == 2:
            begun.set()
            await go.wait()
        if tries[0] <= 2:
            raise ValueError("no")

    await append(app, 1)
    async with node(app):
        await parked(app, 1)
        await app.log.admin.retry_parked("shaky")
        await asyncio.wait_for(begun.wait(), 30)
        assert await app.log.admin.drop_parked("shaky") == [1]
        go.set()
        last = await append(app, 1)
        await app.log.wait_for("shaky", last, timeout=30)

    assert (list(await app.log.admin.parked()) == []) == guarded


@pytest.mark.parametrize("foreign", ["node", "epoch", "run"])
async def test_only_the_owner_keeps_an_event_parked(app, conn, seen, bad, foreign):
    bad.add(1)
    await append(app, 1)
    async with node(app):
        await parked(app, 1)
    await app.log.admin.retry_parked("shaky")
    await conn.execute("update howdah.consumer_partition set node = 7")
    given = dict(
        await conn.fetchrow(
            "select node, epoch, 1::int8 as position, howdah.begin_run() as run from howdah.consumer_partition"
        )
    )
    repark = sql.load("howdah.events", schema="howdah")["repark"]

    for fence in ({**given, foreign: given[foreign] + 1}, given):
        kept = await conn.fetchval(repark, "shaky", 0, *fence.values(), "E", "again", "t")
        assert (kept is not None) == (fence is given)
    [row] = await app.log.admin.parked()
    assert (row.message, row.failures, row.wanted_at) == ("again", 3, None)


# ---------------------------------------------------------------- nobody's fault


@pytest.mark.parametrize("batch", [1, 5])
async def test_connections_that_are_cut_are_not_counted_against_a_consumer(app, conn, seen, batch):
    calls: list[int] = []
    failures: list[int] = []

    @app.consumer("shaky", batch=batch, max_failures=1)
    async def shaky(event, tx):
        calls.append(event.version)
        await tx.execute("insert into seen (version) values ($1)", event.version)
        await asyncio.sleep(0.005)

    last = await append(app, 200)
    async with node(app):
        for _ in range(8):
            before = len(calls)
            await eventually(lambda before=before: _more(calls, before + 10))
            await conn.execute("""
                select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid() and application_name like 'howdah%'""")
            [row] = await eventually(lambda: _look(app))
            failures.append(row.failures)
        await eventually(lambda: _there(app, last), 30)

    assert failures == 8 * [0]
    assert await seen() == list(range(1, 201)), "each exactly once, in order"
    assert len(calls) > 200, "batches were really cut"


async def _more(calls: list[int], wanted: int) -> bool:
    return len(calls) >= min(wanted, 200)


async def _look(app: Howdah) -> Any:
    try:
        return await app.log.admin.consumers("shaky")
    except Exception:
        return None


async def _there(app: Howdah, position: int) -> bool:
    rows = await _look(app)
    return bool(rows) and rows[0].position >= position
