"""Consumers that fail: what is rolled back, who is to blame, and what the policies do about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from howdah import Backoff, ConsecutiveFailures, Howdah, Poison, Retry, telemetry
from kit.node import consumers_of, drain, eventually, node, quick

pytestmark = pytest.mark.anyio
AT_ONCE = Backoff(first=0, jitter=0)
NEVER = Backoff(first=600, cap=600, jitter=0)


@pytest.fixture
async def seen(conn):
    """A read model, and what is in it."""
    await conn.execute("create table seen (n bigserial, version int)")

    async def seen() -> list[int]:
        return [row[0] for row in await conn.fetch("select version from seen order by n")]

    return seen


class Shaky:
    """Notes the versions it sees, and fails on some of them."""

    def __init__(self, *bad: int, error: Callable[[], Exception] = lambda: ValueError("bad luck")) -> None:
        self.bad = set(bad)
        self.error = error
        self.tried: list[int] = []

    async def handle(self, event: Any, tx: Any) -> None:
        self.tried.append(event.version)
        await tx.execute("insert into seen (version) values ($1)", event.version)
        if event.version in self.bad:
            raise self.error()


async def append(app: Howdah, count: int) -> int:
    return (await app.log.append("Order-1", [{"type": "Noted"}] * count)).position


async def standing(app: Howdah, name: str = "shaky") -> Any:
    rows = [row for row in await app.log.admin.consumers() if row.consumer == name]
    return rows[0] if rows else None


async def comes_to(app: Howdah, state: str, name: str = "shaky") -> Any:
    """Wait until a consumer is in a state; returns how it stands."""

    async def there() -> Any:
        row = await standing(app, name)
        return row if row is not None and row.state == state else None

    return await eventually(there)


# ---------------------------------------------------------------- who is to blame


async def test_the_culprit_is_found_and_those_before_it_go_through(app, seen):
    shaky = Shaky(6)
    app.consumer("shaky", retry=NEVER)(shaky)
    await append(app, 10)
    async with node(app):
        row = await comes_to(app, "retrying")

    assert shaky.tried == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6], "the batch, then one by one"
    assert await seen() == [1, 2, 3, 4, 5]
    assert (row.position, row.error_position, row.failures, row.handled) == (5, 6, 1, 5)
    assert (row.error, row.message) == ("ValueError", "bad luck")
    assert "in handle" in row.traceback
    assert "howdah/events" not in row.traceback


async def test_the_culprit_in_a_whole_batch_is_found_too(app, seen):
    calls: list[list[int]] = []

    @app.consumer("shaky", retry=NEVER)
    async def shaky(events, tx):
        calls.append([event.version for event in events])
        await tx.executemany("insert into seen (version) values ($1)", [(event.version,) for event in events])
        if any(event.version == 3 for event in events):
            raise ValueError("bad luck")

    await append(app, 5)
    async with node(app):
        row = await comes_to(app, "retrying")

    assert calls == [[1, 2, 3, 4, 5], [1], [2], [3]]
    assert await seen() == [1, 2]
    assert (row.position, row.error_position) == (2, 3)


async def test_an_error_of_the_handlers_own_sql_is_its_failure(app, conn, seen):
    await conn.execute("create table once (version int primary key)")
    await conn.execute("insert into once values (4)")

    @app.consumer("shaky", retry=NEVER)
    async def shaky(event, tx):
        await tx.execute("insert into seen (version) values ($1)", event.version)
        await tx.execute("insert into once values ($1)", event.version)

    await append(app, 6)
    async with node(app):
        row = await comes_to(app, "retrying")

    assert (row.error, row.error_position, row.failures) == ("UniqueViolationError", 4, 1)
    assert await seen() == [1, 2, 3]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_handler_that_hangs_is_found_and_halted(app, seen, whole):
    async def note(version: int, tx: Any) -> None:
        await tx.execute("insert into seen (version) values ($1)", version)
        if version == 4:
            await asyncio.sleep(60)

    if whole:

        @app.consumer("shaky", timeout=0.5, max_failures=2, retry=AT_ONCE)
        async def batches(events, tx):
            for event in events:
                await note(event.version, tx)
    else:

        @app.consumer("shaky", timeout=0.5, max_failures=2, retry=AT_ONCE)
        async def single(event, tx):
            await note(event.version, tx)

    await append(app, 6)
    async with node(app):
        row = await comes_to(app, "halted")

    assert (row.error, row.error_position, row.position, row.failures) == ("Overran", 4, 3, 2)
    assert "longer than 0.5 s" in row.message
    assert await seen() == [1, 2, 3]


async def test_a_handler_that_hangs_when_run_again_is_found(app, seen):
    """The batch raises, and then one of them hangs where the culprit is looked for."""
    shaky = Shaky(3)
    app.consumer("shaky", timeout=0.5, max_failures=2, retry=AT_ONCE)(shaky)

    async def handle(event: Any, tx: Any) -> None:
        await Shaky.handle(shaky, event, tx)
        if event.version == 2 and shaky.tried.count(2) > 1:
            await asyncio.sleep(60)

    app.consumers["shaky"].handle = handle
    await append(app, 4)
    async with node(app):
        row = await comes_to(app, "halted")
    assert (row.error, row.error_position, row.position) == ("Overran", 2, 1)
    assert await seen() == [1]


# ---------------------------------------------------------------- again, and how often


async def test_the_same_position_is_tried_again_with_backoff(app, seen):
    at: list[float] = []

    @app.consumer("shaky", retry=Backoff(first=0.2, factor=2, jitter=0))
    async def shaky(event, tx):
        await tx.execute("insert into seen (version) values ($1)", event.version)
        at.append(time.monotonic())
        if len(at) < 4:
            raise ValueError

    last = await append(app, 1)
    async with node(app):
        await eventually(lambda: standing(app))
        await app.log.wait_for("shaky", last)

    waits = [after - before for before, after in pairwise(at)]
    assert [wait >= least for wait, least in zip(waits, (0.19, 0.39, 0.79), strict=True)] == 3 * [True], waits
    assert await seen() == [1]
    row = await standing(app)
    assert (row.failures, row.error, row.error_position, row.message) == (0, None, None, None), "a success forgets it"


async def test_an_error_can_say_when_to_try_again(app, seen):
    delays: list[float | None] = []
    unsubscribe = telemetry.subscribe(
        lambda name, facts: delays.append(facts["delay"]) if name == "consumer.fail" else None
    )
    app.consumer("shaky", retry=AT_ONCE)(Shaky(1, error=lambda: Retry("busy", after=77)))
    await append(app, 1)
    await drain(app)
    unsubscribe()
    assert delays == [77]


@pytest.mark.parametrize("error", [ValueError, Poison])
async def test_halting_stops_this_consumer_and_no_other(app, conn, seen, error):
    shaky = Shaky(2, error=lambda: error("bad luck"))
    app.consumer("shaky", retry=AT_ONCE)(shaky)
    app.consumer("steady")(_steady)
    await append(app, 3)
    async with node(app) as running_node:
        row = await comes_to(app, "halted")
        last = await append(app, 1)
        await app.log.wait_for("steady", last)
        assert [runner.consumer.name for runner in consumers_of(running_node).runners if runner.ended is None] == [
            "steady"
        ]
        row = await standing(app)

    assert shaky.tried.count(2) == (2 if error is Poison else 6)
    assert (row.state, row.position, row.error_position, row.failures) == ("halted", 1, 2, 5)
    assert (row.error, row.message, row.lag) == (error.__name__, "bad luck", 3)
    assert await seen() == [1]
    await drain(app)
    assert (await standing(app)).state == "halted", "a new node leaves it alone"


async def _steady(event: Any) -> None: ...


async def test_what_halted_goes_on_where_it_stands(app, seen):
    shaky = Shaky(2)
    app.consumer("shaky", max_failures=1)(shaky)
    last = await append(app, 3)
    async with node(app):
        await comes_to(app, "halted")
        assert await app.log.admin.resume("shaky")
        await eventually(lambda: _is(shaky.tried.count(2) == 4))
        await comes_to(app, "halted")
        shaky.bad.clear()
        assert await app.log.admin.resume("shaky")
        await app.log.wait_for("shaky", last)
        assert not await app.log.admin.resume("shaky")
    assert await seen() == [1, 2, 3]


async def test_what_halted_can_skip_the_event_or_begin_anew(app, seen):
    shaky = Shaky(2)
    app.consumer("shaky", max_failures=1)(shaky)
    last = await append(app, 3)
    async with node(app):
        await comes_to(app, "halted")
        assert await app.log.admin.skip("shaky") == [2]
        await app.log.wait_for("shaky", last)
        assert await seen() == [1, 3]
        shaky.bad.clear()
        assert await app.log.admin.reset("shaky", "beginning") == 0
        await app.log.wait_for("shaky", last)
    assert await seen() == [1, 3, 1, 2, 3]


async def _is(what: bool) -> bool:
    return what


async def test_failures_in_a_row_are_counted_across_nodes(app, database, seen):
    shaky = Shaky(1)
    app.consumer("shaky", retry=NEVER)(shaky)
    await append(app, 1)
    for failures in (1, 2, 3):
        async with node(app):
            await eventually(lambda failures=failures: _failed(app, failures))
    other = Howdah(database.dsn)
    other.consumer("shaky", retry=AT_ONCE)(shaky)
    async with node(other):
        row = await comes_to(app, "halted")
    assert (row.failures, len(shaky.tried)) == (5, 5)
    await other.close()


async def _failed(app: Howdah, times: int) -> bool:
    row = await standing(app)
    return row is not None and row.failures == times


async def test_a_consumer_may_stop_the_worker(app, seen):
    """As the system does that this follows; opted into by name."""
    shaky = Shaky(2)
    app.consumer("shaky", on_failure="stop_worker", retry=AT_ONCE)(shaky)
    app.consumer("steady")(_steady)
    await append(app, 3)
    for times in (6, 11):  # once more to find the culprit; a node that is started again begins anew
        with pytest.raises(ConsecutiveFailures, match=r"shaky failed 5 times in a row at position 2: ValueError"):
            await asyncio.wait_for(app.node(quick()).run(), 60)
        assert shaky.tried.count(2) == times
    assert await seen() == [1]
    shaky.bad.clear()
    await drain(app)
    assert await seen() == [1, 2, 3]
