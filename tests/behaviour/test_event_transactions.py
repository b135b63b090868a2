"""Events: what a consumer writes, enqueues and appends is one commit with its checkpoint."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from howdah import Backoff, Event, Howdah, Transaction, current_job, telemetry
from kit.node import drain, ended, eventually, node

pytestmark = pytest.mark.anyio
AT_ONCE = Backoff(first=0, jitter=0)
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


async def test_a_handler_that_dies_with_its_connection_leaves_nothing_of_both(app, conn, seen):
    pids: list[int] = []

    @app.consumer("projection")
    async def projection(event, tx):
        await note(event, tx)
        pids.append(await tx.fetchval("select pg_backend_pid()"))
        if len(pids) == 3:
            await tx.fetchval("select pg_sleep(30)")

    await append(app, "Order-1", "Order-2", "Order-3")
    async with node(app):
        await eventually(lambda: _length(pids, 3))
        assert await seen() == []
        assert (await standing(app, "projection")).position == 0
        await conn.execute("select pg_terminate_backend($1)", pids[-1])
        await app.log.wait_for("projection", (await append(app, "Order-4"))[0])

    assert await seen() == ["Order-1", "Order-2", "Order-3", "Order-4"]
    row = await standing(app, "projection")
    assert (row.state, row.failures, row.error, row.handled) == ("unassigned", 0, None, 4)


async def test_a_node_that_stops_at_once_leaves_nothing_of_both(app, seen):
    inside = asyncio.Event()
    wait = True

    @app.consumer("projection")
    async def projection(event, tx):
        await note(event, tx)
        if wait:
            inside.set()
            await asyncio.sleep(60)

    await append(app, "Order-1")
    async with node(app) as running_node:
        await asyncio.wait_for(inside.wait(), 30)
        running_node.stop(now=True)
    row = await standing(app, "projection")
    assert (await seen(), row.position, row.failures) == ([], 0, 0)

    wait = False
    await drain(app)
    assert await seen() == ["Order-1"]


async def test_a_node_that_stops_finishes_its_batch_first(app, seen):
    inside = asyncio.Event()

    @app.consumer("projection", batch=2)
    async def projection(event, tx):
        inside.set()
        await asyncio.sleep(0.2)
        await note(event, tx)

    await append(app, "Order-1", "Order-2", "Order-3")
    async with node(app) as running_node:
        await asyncio.wait_for(inside.wait(), 30)
        running_node.stop()

    assert await seen() == ["Order-1", "Order-2"]
    assert await seen("position") == [1, (await standing(app, "projection")).position]


async def test_jobs_a_consumer_enqueues_belong_to_its_transaction(app, conn, seen):
    tries: list[int] = []

    @app.task
    async def mail(order: str) -> str:
        return order

    @app.consumer("notify", retry=AT_ONCE)
    async def notify(event, tx):
        await note(event, tx)
        await mail.using(conn=tx).enqueue(event.stream)
        tries.append(event.position)
        if len(tries) < 3:
            raise RuntimeError("not yet")

    await append(app, "Order-1")
    async with node(app):
        id = await eventually(lambda: conn.fetchval("select id from howdah.jobs where kind = 'mail'"))
        assert (await ended(conn, id))["state"] == "done"

    assert await seen() == ["Order-1"]
    assert await conn.fetchval("select count(*) from howdah.jobs where kind = 'mail'") == 1


async def test_events_a_transactional_task_appends_belong_to_its_transaction(app, conn, seen):
    @app.task(transactional=True, max_attempts=2, retry=AT_ONCE)
    async def charge(tx: Transaction, order: int) -> None:
        await app.log.append(f"Order-{order}", {"type": "Charged"}, conn=tx)
        if current_job().attempt == 1:
            raise RuntimeError("card refused")

    app.consumer("projection")(note)
    made = await charge.enqueue(17)
    async with node(app):
        assert (await ended(conn, made.id))["state"] == "done"
        await eventually(seen)

    [event] = await app.log.stream("Order-17")
    assert (event.correlation, event.causation) == (f"job {made.id}", f"job {made.id}")
    assert await seen() == ["Order-17"]


async def test_what_a_consumer_appends_knows_where_it_comes_from(app, conn):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @app.task
    async def mail() -> None: ...

    @app.consumer("policy", only=["Order"])
    async def policy(event, tx):
        await app.log.append(f"Mail-{event.stream_id}", {"type": "Wanted"}, conn=tx)
        await mail.using(conn=tx).enqueue()

    token = telemetry.carried.set(trace)
    named = await app.log.append("Order-1", {"type": "Placed"}, correlation="basket 3")
    telemetry.carried.reset(token)
    plain = await app.log.append("Order-2", {"type": "Placed"})
    await drain(app)

    [first], [second] = await app.log.stream("Mail-1"), await app.log.stream("Mail-2")
    assert (first.correlation, first.causation, first.trace) == ("basket 3", f"event {named.position}", trace)
    assert (second.correlation, second.causation, second.trace) == (*2 * [f"event {plain.position}"], None)
    jobs = await conn.fetch("select trace from howdah.jobs where kind = 'mail' order by id")
    assert [row["trace"] for row in jobs] == [trace, None]


async def _length(items: list[Any], wanted: int) -> bool:
    return len(items) >= wanted
