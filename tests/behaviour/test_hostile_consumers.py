"""Consumers that do what they should not: the node survives, nothing is lost, and somebody is told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from howdah import Backoff, Howdah, telemetry
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio
AT_ONCE = Backoff(first=0, jitter=0)


@pytest.fixture
async def seen(conn):
    """A read model, and what is in it."""
    await conn.execute("create table seen (n bigserial, stream text)")

    async def seen() -> list[str]:
        return [row[0] for row in await conn.fetch("select stream from seen order by n")]

    return seen


async def append(app: Howdah, *streams: str) -> None:
    for stream in streams:
        await app.log.append(stream, {"type": "Noted"})


async def standing(app: Howdah, name: str) -> Any:
    [row] = await app.log.admin.consumers(name)
    return row


async def halted(app: Howdah, name: str) -> Any:
    """Wait until a consumer stands still; returns how it stands."""
    return await eventually(lambda: _halted(app, name))


async def _halted(app: Howdah, name: str) -> Any:
    rows = [row for row in await app.log.admin.consumers() if row.consumer == name and row.state == "halted"]
    return rows[0] if rows else None


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration])
@pytest.mark.parametrize("events", [1, 3])
async def test_the_node_survives_whatever_a_handler_raises(app, seen, error, events):
    calls: list[int] = []

    @app.consumer("bad", max_failures=2, retry=AT_ONCE)
    async def bad(event, tx):
        await tx.execute("insert into seen (stream) values ($1)", event.stream)
        if event.stream == f"Order-{events}":
            calls.append(event.position)
            raise error("bad")

    @app.consumer("good")
    async def good(event): ...

    await append(app, *(f"Order-{n}" for n in range(1, events + 1)))
    async with node(app):
        row = await halted(app, "bad")
        await app.log.wait_for("good", await app.log.append("Order-9", {"type": "Noted"}))

    assert row.error in (error.__name__, "RuntimeError")  # a coroutine turns StopIteration into one
    assert (row.failures, row.error_position, row.position) == (2, events, events - 1)
    assert len(calls) == (2 if events == 1 else 3), "once more to find the culprit"
    assert await seen() == [f"Order-{n}" for n in range(1, events)]


@pytest.mark.parametrize("what", [object(), NotImplemented, b"\xff", float("nan"), [1], RuntimeError("not raised")])
async def test_what_a_handler_returns_is_of_no_interest(app, what):
    @app.consumer("strange")
    async def strange(event):
        return what

    await append(app, "Order-1", "Order-2")
    await drain(app)
    row = await standing(app, "strange")
    assert (row.handled, row.failures) == (2, 0)


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_a_handler_that_ends_the_transaction_is_found_out(app, seen, how):
    """Otherwise the checkpoint would move without what was written, and events be lost in silence."""
    meddling = True

    @app.consumer("meddles", max_failures=2, retry=AT_ONCE)
    async def meddles(event, tx):
        await tx.execute("insert into seen (stream) values ($1)", event.stream)
        if event.stream == "Order-3" and meddling:
            await tx.execute(how)

    await append(app, *(f"Order-{n}" for n in range(1, 6)))
    async with node(app):
        row = await halted(app, "meddles")
        assert (row.error_position, row.position) == (3, 2)
        assert "must not commit or roll back" in row.message

        meddling = False
        await app.log.admin.resume("meddles")
        await app.log.wait_for("meddles", 5)
    assert set(await seen()) == {f"Order-{n}" for n in range(1, 6)}


@pytest.mark.parametrize("how", ["close", "terminate"])
async def test_a_handler_that_closes_the_connection_again_and_again_is_found_out(app, seen, how):
    @app.consumer("closes", max_failures=2, retry=AT_ONCE)
    async def closes(event, tx):
        await tx.execute("insert into seen (stream) values ($1)", event.stream)
        if event.stream == "Order-3":
            result = getattr(tx.connection, how)()
            if how == "close":
                await result

    await append(app, *(f"Order-{n}" for n in range(1, 6)))
    async with node(app):
        row = await halted(app, "closes")

    assert (row.error_position, row.position) == (3, 2)
    assert await seen() == ["Order-1", "Order-2"]


async def test_a_handler_that_swallows_an_error_of_its_sql_is_found_out(app, seen):
    @app.consumer("swallows", max_failures=2, retry=AT_ONCE)
    async def swallows(event, tx):
        if event.stream == "Order-3":
            try:
                await tx.execute("select 1 / 0")
            except Exception:
                return
        await tx.execute("insert into seen (stream) values ($1)", event.stream)

    await append(app, *(f"Order-{n}" for n in range(1, 6)))
    async with node(app):
        row = await halted(app, "swallows")

    assert (row.error, row.error_position, row.position) == ("InFailedSQLTransactionError", 3, 2)
    assert await seen() == ["Order-1", "Order-2"]


@pytest.mark.parametrize("count", [1, 20])
async def test_a_constraint_that_is_checked_at_the_end_is_the_handlers_fault(app, conn, seen, count):
    await conn.execute("create table twice (stream text unique deferrable initially deferred)")

    @app.consumer("deferred", max_failures=2, retry=AT_ONCE)
    async def deferred(event, tx):
        await tx.execute("insert into seen (stream) values ($1)", event.stream)
        for _ in range(2 if event.version == count else 1):
            await tx.execute("insert into twice values ($1)", f"{event.version}")

    outages: list[str] = []
    unsubscribe = telemetry.subscribe(
        lambda name, facts: outages.append(facts["loop"]) if name == "loop.fail" else None
    )
    await app.log.append("Order-1", [{"type": "Noted"}] * (count + 3))
    async with node(app):
        row = await halted(app, "deferred")
    unsubscribe()

    assert "consumer deferred" not in outages, "the server was never away"
    assert (row.error, row.error_position, row.position) == ("UniqueViolationError", count, count - 1)
    assert len(await seen()) == count - 1


async def test_a_handler_that_blocks_the_loop_past_its_lease_does_not_apply_twice(app, seen):
    blocked: list[str] = []

    @app.consumer("blocks")
    async def blocks(event, tx):
        await tx.execute("insert into seen (stream) values ($1)", event.stream)
        if not blocked:
            blocked.append(event.stream)
            time.sleep(2)

    await append(app, "Order-1", "Order-2")
    async with node(app, lease=1.0, heartbeat=0.2):
        await eventually(lambda: _blocked(blocked))
        await app.log.wait_for("blocks", 2, timeout=30)

    assert await seen() == ["Order-1", "Order-2"]
    assert (await standing(app, "blocks")).error is None


async def _blocked(blocked: list[str]) -> bool:
    return bool(blocked)


async def test_a_handler_may_do_other_things_for_longer_than_the_lease(app, seen):
    @app.consumer("patient")
    async def patient(event, tx):
        await tx.execute("insert into seen (stream) values ($1)", event.stream)
        await asyncio.sleep(4.5)

    await append(app, "Order-1")
    await drain(app, lease=2.5, heartbeat=0.2)
    assert await seen() == ["Order-1"]


async def test_events_that_cannot_be_read_are_the_handlers_failure(app, conn):
    app.upcaster("Noted", version=1)(lambda data: {**data, "new": True})

    @app.consumer("reads", max_failures=1)
    async def reads(event):
        assert event.data["new"]

    await app.log.append("Order-1", {"type": "Noted", "version": 1})
    await app.log.append("Order-1", {"type": "Noted", "version": 9})
    async with node(app):
        row = await halted(app, "reads")
    assert row.error == "EventError"
    assert "deploy the code that wrote it" in row.message
