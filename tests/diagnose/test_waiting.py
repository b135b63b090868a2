"""Why a job waits: each gate, in a real situation, with its fact and what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from howdah import Backoff, Howdah
from howdah.node.registry import node_name
from howdah.postgres.database import Database
from kit.node import eventually, job, node

pytestmark = pytest.mark.anyio


@pytest.fixture
def send(app: Howdah) -> Any:
    @app.task(queue="mail", retry=Backoff(first=7200, cap=7200, jitter=0))
    async def send(fail: bool = False) -> None:
        if fail:
            raise ValueError("no\nsuch  user")

    return send


async def registered(conn: Any, nodes: int = 1) -> None:
    """Wait until so many nodes are known to everybody."""
    await eventually(lambda: conn.fetchval("select count(*) = $1 from howdah.node where state <> 'offline'", nodes))


async def test_nobody_works_at_all(send: Any, ask: Any, closed: Any) -> None:
    made = await send.enqueue()

    gate = (await ask(made.id))["node"]
    assert await closed(made.id) == ["node"]
    assert gate.fact == "no node is live"
    assert gate.fix == "start a worker: howdah worker -a module:app -q mail"


async def test_a_node_that_has_gone_silent_is_named(send: Any, app: Howdah, ask: Any, conn: Any) -> None:
    made = await send.enqueue()
    await conn.execute(
        "insert into howdah.node (name, kinds, slots, beat_at, remote) values"
        " ('web:7', '{send}', 5, now() - interval '40 seconds', false),"
        " ('far:8', '{send}', 5, now() - interval '95 seconds', true)"
    )

    assert (await ask(made.id))["node"].fact == (
        "no node is live: node 2 (far:8) has sent no heartbeat for 2 min; node 1 (web:7) has sent no heartbeat for 40 s"
    )
    await conn.execute("update howdah.node set beat_at = now() - interval '40 seconds'")
    assert (await ask(made.id))["node"].fact == "node 2 (far:8) serves queue 'mail' and has task 'send'"


async def test_no_live_node_has_the_task_the_queue_or_the_label(
    database: Database, send: Any, ask: Any, closed: Any, conn: Any
) -> None:
    other = Howdah(database.dsn)

    @other.task
    async def else_() -> None: ...

    made = await send.enqueue()
    labelled = await send.using(requires=["gpu"]).enqueue()
    async with node(other) as first:
        await registered(conn)
        name = node_name()
        assert (await ask(made.id))["node"].fact == (
            f"no live node can run it: node {first.node} ({name}) has no task 'send'"
        )
        async with node(other, queues={"mail": None, "default": None}, labels=["arm64"]) as second:
            await registered(conn, 2)
            gate = (await ask(labelled.id))["node"]
            assert await closed(labelled.id) == ["node"]
            assert f"node {first.node} ({name}) lacks label 'gpu' and has no task 'send'" in gate.fact
            assert f"node {second.node} ({name}) lacks label 'gpu' and has no task 'send'" in gate.fact
            assert (
                gate.fix
                == "start a worker: howdah worker -a module:app -q mail --label gpu, with an app that has task 'send'"
            )


async def test_a_node_that_has_the_task_serves_other_queues(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    made = await send.enqueue()
    async with node(app, queues={"default": None}) as running_node:
        await registered(conn)
        fact = (await ask(made.id))["node"].fact

    assert fact == f"no live node can run it: node {running_node.node} ({node_name()}) does not serve queue 'mail'"


async def test_the_only_node_drains(app: Howdah, send: Any, long: Any, ask: Any, closed: Any, conn: Any) -> None:
    slow = long()
    async with node(app, grace=30) as running_node:
        await slow.start()
        running_node.stop()
        await eventually(lambda: conn.fetchval("select state = 'draining' from howdah.node"))
        made = await send.enqueue()
        gate = (await ask(made.id))["node"]
        assert await closed(made.id) == ["node"]
        assert gate.fact == f"no live node can run it: node {running_node.node} ({node_name()}) is draining"
        slow.go.set()


async def test_not_due_yet(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    made = await send.using(delay=7200).enqueue()
    async with node(app):
        await registered(conn)
        gates = await ask(made.id)

    due = (await job(conn, made.id))["run_at"]
    assert [name for name, gate in gates.items() if not gate.open] == ["due"]
    assert gates["due"].fact == f"it is not due until {due:%Y-%m-%d %H:%M:%SZ} (in 2 h)"
    assert "turn" not in gates


async def test_waiting_to_retry_after_an_error(app: Howdah, send: Any, ask: Any, closed: Any, conn: Any) -> None:
    made = await send.enqueue(fail=True)
    async with node(app):
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.attempt"))
        gate = (await ask(made.id))["retry"]
        assert await closed(made.id) == ["retry"]

    assert gate.fact.startswith("it waits for a retry until ")
    assert gate.fact.endswith("(in 2 h): attempt 1 of 5 ended with ValueError: no such user")


async def test_a_retried_job_is_due_and_starts_with_no_attempt_used(app: Howdah, ask: Any, conn: Any) -> None:
    @app.task(queue="mail", max_attempts=1)
    async def bad() -> None:
        raise ValueError("no such user")

    made = await bad.enqueue()
    async with node(app):
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.done"))
    await app.admin.retry([made.id])

    since = (await job(conn, made.id))["enqueued_at"]
    [queue] = await app.admin.queues()
    due = (await ask(made.id))["due"]
    assert due.open
    assert due.fact.startswith(f"it is due since {since:%Y-%m-%d %H:%M:%SZ} (")
    assert due.fact.endswith(" ago); no attempt is used; the one before ended with ValueError: no such user")
    assert (queue.queued, queue.scheduled) == (1, 0)


async def test_a_retry_does_not_wait_for_the_time_of_a_job_that_was_cancelled_before(
    app: Howdah, send: Any, ask: Any
) -> None:
    made = await send.using(delay=7200).enqueue()
    await app.admin.cancel([made.id])
    await app.admin.retry([made.id])

    due, [queue] = (await ask(made.id))["due"], await app.admin.queues()
    assert due.open
    assert due.fact.startswith("it is due now: it was retried before 20")
    assert due.fact.endswith("(in 2 h)")
    assert (queue.queued, queue.scheduled) == (1, 0)


async def test_the_queue_is_paused(app: Howdah, send: Any, ask: Any, closed: Any, conn: Any) -> None:
    await app.admin.pause("mail", "ada")
    made = await send.enqueue()
    async with node(app):
        await registered(conn)
        gates = await ask(made.id)
        assert await closed(made.id) == ["pause"]
        assert gates["pause"].fact.startswith("queue 'mail' is paused by ada since 20")
        assert gates["pause"].fix == "howdah resume mail"

        await app.admin.resume("mail")
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.done"))


async def test_all_slots_are_busy_and_by_what(app: Howdah, send: Any, long: Any, ask: Any, closed: Any) -> None:
    slow = long()
    async with node(app, slots=2) as running_node:
        first, second = await slow.start(), await slow.start()
        made = await send.enqueue()
        gates = await ask(made.id)
        assert await closed(made.id) == ["slots"]
        name = f"node {running_node.node} ({node_name()})"
        busy = f"all 2 slots of {name} are taken by jobs {first}, {second}, the first since"
        assert gates["slots"].fact.startswith(busy)
        assert gates["slots"].fix == "wait, start another worker, or give it more slots: howdah worker -c N"
        assert gates["turn"].fact == "it is the next job of its queue"
        slow.go.set()


async def test_a_costly_job_takes_several_slots(app: Howdah, send: Any, long: Any, ask: Any, closed: Any) -> None:
    slow = long(cost=3)
    async with node(app, slots=3):
        first = await slow.start()
        made = await send.enqueue()

        async def reported() -> bool:
            return await closed(made.id) == ["slots"]

        await eventually(reported)  # with the next heartbeat
        fact = (await ask(made.id))["slots"].fact
        assert f"are taken by job {first}, the first since" in fact
        assert fact.endswith(", and 2 of them by table rows or by jobs with a cost above 1")
        slow.go.set()


async def test_a_batch_takes_one_slot(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    @app.task(batch=10)
    async def many(n: list[int]) -> None:
        inside.set()
        await go.wait()

    @app.task(batch=10, within=60.0)
    async def gathered(n: list[int]) -> None: ...

    await conn.execute("select howdah.pause('mail')")
    await app.enqueue_many(many.job(n) for n in range(7))
    await app.enqueue_many(gathered.job(n) for n in range(3))
    made = await send.enqueue()
    async with node(app, slots=8) as running_node:
        await asyncio.wait_for(inside.wait(), 30)
        assert len(running_node.running) == 7

        async def reported() -> bool:
            return bool(await conn.fetchval("select beside < 0 from howdah.node where running = 1"))

        await eventually(reported)  # with the next heartbeat
        assert (await ask(made.id))["slots"].fact.startswith("7 of 8 free on")
        go.set()


async def test_the_limit_of_the_queue_is_reached(app: Howdah, send: Any, long: Any, ask: Any, closed: Any) -> None:
    slow = long(queue="mail")
    async with node(app, slots=10, queues={"mail": 1, "default": None}) as running_node:
        first = await slow.start()
        made = await send.enqueue()
        gates = await ask(made.id)
        assert await closed(made.id) == ["limit"]
        name = f"node {running_node.node} ({node_name()})"
        assert gates["limit"].fact.startswith(
            f"{name} runs 1 of at most 1 job of queue 'mail' by job {first}, the first"
        )
        assert gates["limit"].fix == "wait, start another worker, or raise the limit: howdah worker -q mail:N"
        assert gates["slots"].fact == f"9 of 10 free on {name}"
        slow.go.set()


async def test_behind_others_of_higher_priority_and_earlier_ones(
    app: Howdah, send: Any, long: Any, ask: Any, closed: Any
) -> None:
    slow = long()
    async with node(app, slots=1):
        await slow.start()
        run = await app.enqueue_many(send.job() for _ in range(3))
        made = await send.enqueue()
        await send.using(priority=5).enqueue()
        await send.using(priority=-5).enqueue()  # comes after
        gates = await ask(made.id)
        assert await closed(made.id) == ["slots", "turn"]
        assert gates["turn"].fact == "behind 4 jobs: 1 of higher priority, 3 that came earlier"
        assert gates["turn"].fix == f"wait, start another worker, or howdah reprioritize --to N {made.id}"
        assert (await ask(run[1].id))["turn"].fact == "behind 2 jobs: 1 of higher priority, 1 that came earlier"
        slow.go.set()


async def test_jobs_of_kinds_no_node_takes_are_not_in_the_way(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    for _ in range(3):
        await conn.execute("select howdah.enqueue('unknown', queue => 'mail')")
    await app.admin.pause("mail")
    made = await send.enqueue()
    async with node(app, slots=1):
        await registered(conn)
        gates = await ask(made.id)

    assert gates["turn"].open
    assert gates["turn"].fact == "it is the next job of its queue"


@pytest.mark.superuser("sees what other roles run")
async def test_somebody_has_locked_its_place(
    app: Howdah, send: Any, ask: Any, closed: Any, conn: Any, direct: Database
) -> None:
    await app.admin.pause("mail")
    made = await send.enqueue()
    other = await asyncpg.connect(direct.dsn, server_settings={"application_name": "psql"})
    begun = other.transaction()
    await begun.start()
    await other.execute("select howdah.cancel(array[$1::int8])", made.id)
    gates = await ask(made.id)
    pid = other.get_server_pid()
    assert await closed(made.id) == ["node", "pause", "lock"]
    assert gates["lock"].fact.startswith(f"pid {pid} (psql; idle in transaction: select howdah.cancel(")
    assert gates["lock"].fix == f"end that transaction, or select pg_terminate_backend({pid})"

    await begun.rollback()
    await other.close()
    assert "lock" not in await closed(made.id)


async def test_a_wish_to_cancel_that_came_while_it_moved(send: Any, ask: Any, conn: Any) -> None:
    made = await send.enqueue()
    await conn.execute("insert into howdah.cancel_request (id) values ($1)", made.id)

    gate = (await ask(made.id))["cancel"]
    assert gate.open
    assert gate.fact.startswith("a cancel was requested 20")


async def test_a_node_that_hears_no_wake_ups(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    await app.admin.pause("mail")
    made = await send.enqueue()
    async with node(app, heartbeat=9, lease=20, poll=0.5) as running_node:
        await eventually(lambda: conn.fetchval("select beat_at > started_at from howdah.node"))
        await conn.execute("update howdah.node set deaf = true")  # as the heart says when its probe is not heard
        wake = (await ask(made.id))["wake"]

    assert wake.open
    assert wake.fact == f"node {running_node.node} ({node_name()}) receives no wake-ups and polls every 0.5 s"
    assert wake.fix is not None
