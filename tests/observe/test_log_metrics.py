"""The event log and its consumers in the metrics of a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from howdah import Backoff, Howdah
from howdah.cli.node import NodeProcess
from howdah.observe import sampler as census
from howdah.observe.node import NodeObserver, observe_node
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import ConsumerLag, ConsumerPosition, LogPosition
from howdah.postgres.database import Database
from kit.node import consumers_of, eventually, node, quick
from kit.roles import worker
from observe.scraping import Samples, get, observed_node, samples, scrape, status_of, value

pytestmark = pytest.mark.anyio

AT_ONCE = Backoff(first=0.0, jitter=0)
DATABASE_WIDE = ("lag_events", "lag_seconds", "halted", "paused", "unassigned", "parked_events")


@asynccontextmanager
async def observed_consumers(app: Howdah, database: Database) -> AsyncIterator[NodeObserver]:
    """A node with consumers, observed as the command line does."""
    async with node(app) as running_node:

        def leads() -> bool | None:
            return consumers_of(running_node).leads if running_node.services else None

        async with observe_node(database, replace(status_of(running_node), leads=leads)) as observed:
            yield observed


async def counted(observed: NodeObserver, **expected: float) -> Samples:
    """What a scrape shows once these figures of consumer ``Billing`` are there."""

    async def shown() -> Samples | None:
        await observed.lag.count()
        found = await scrape(observed)
        return found if {name: of(found, name) for name in expected} == expected else None

    found: Samples = await eventually(shown)
    return found


def of(found: Samples, name: str, consumer: str = "Billing") -> float | None:
    return value(found, f"consumer_{name}", consumer=consumer)


async def append(app: Howdah, count: int = 1, stream: str = "Order-1") -> int:
    appended = await app.log.append(stream, [{"type": "Placed", "data": {"n": n}} for n in range(count)])
    return appended.position


async def test_what_a_consumer_did_and_how_it_stands(app: Howdah, database: Database) -> None:
    @app.consumer("Billing", batch=10)
    async def billing(event: Any) -> None: ...

    async with observed_consumers(app, database) as observed:
        last = await append(app, 25)
        found = await counted(observed, events_total=25, lag_events=0, unassigned=0)

    assert of(found, "batch_duration_seconds_count") >= 3
    assert 0 < of(found, "batch_duration_seconds_sum") < 60
    assert of(found, "failures_total") == 0
    assert [of(found, name) for name in DATABASE_WIDE] == [0] * 6
    assert value(found, "log_events_appended_total") == 25
    assert value(found, "log_head") == value(found, "log_frontier") == last
    assert value(found, "log_frontier_age_seconds") == 0
    assert value(found, "leader") == 1


async def test_a_consumer_that_halts_falls_behind_and_the_node_stays_ready(app: Howdah, database: Database) -> None:
    @app.consumer("Billing", retry=AT_ONCE, max_failures=3)
    async def billing(event: Any) -> None:
        raise ValueError("no")

    @app.consumer("Mail")
    async def mail(event: Any) -> None: ...

    async with observed_consumers(app, database) as observed:
        last = await append(app, 5)
        found = await counted(observed, halted=1, failures_total=3)
        await eventually(lambda: _is_ready(observed))
        status, body = await asyncio.to_thread(get, observed.port, "/readyz")
        _, alive = await asyncio.to_thread(get, observed.port, "/livez")
        await app.log.admin.reset("Billing", last)
        await counted(observed, halted=0, lag_events=0)
        after = await asyncio.to_thread(get, observed.port, "/readyz")

    assert (of(found, "lag_events"), of(found, "events_total")) == (5, 0)
    assert of(found, "lag_seconds") > 0
    assert (of(found, "halted", "Mail"), of(found, "failures_total", "Mail")) == (0, 0)
    assert (status, body, alive) == (200, "ok\nhalted consumers: Billing\n", "ok\n")
    assert after == (200, "ok\n")


async def test_parked_events_paused_consumers_and_an_open_append(
    app: Howdah, database: Database, direct: Database
) -> None:
    @app.consumer("Billing", on_failure="park", max_failures=2, retry=AT_ONCE)
    async def billing(event: Any) -> None:
        if event.data["n"] == 1:
            raise ValueError("no")

    async with observed_consumers(app, database) as observed:
        await append(app, 3)
        parked = await counted(observed, parked_events=1, events_total=2)
        await app.log.admin.pause("Billing")
        conn = await worker(direct).connect("test")
        async with conn.transaction():
            last = await app.log.append("Order-2", {"type": "Placed", "data": {}}, conn=conn)
            await append(app, 2, "Order-3")
            held = await counted(observed, paused=1, lag_events=3)
        freed = await counted(observed, paused=1, lag_events=3)
        await conn.close()

    assert of(parked, "failures_total") == 2
    assert of(parked, "halted") == 0
    assert value(held, "log_frontier") == last.position - 1
    assert value(held, "log_head") == last.position + 2
    assert value(held, "log_frontier_age_seconds") > 0
    assert value(freed, "log_frontier") == value(freed, "log_head")
    assert value(freed, "log_frontier_age_seconds") == 0


async def test_the_part_furthest_behind_counts(app: Howdah, database: Database, conn: Any) -> None:
    await conn.execute("insert into howdah.consumer (name, partitions) values ('Billing', 2)")
    await conn.execute("insert into howdah.node (name) values ('a:1'), ('b:2')")
    await conn.execute(
        "insert into howdah.consumer_partition (consumer, part, node) values ('Billing', 0, 1), ('Billing', 1, 2)"
    )
    last = await append(app, 6)
    await conn.execute(
        "insert into howdah.checkpoint (consumer, part, position) values ('Billing', 0, $1), ('Billing', 1, $2)",
        last - 4,
        last,
    )
    lag = ConsumerLag(database, dead=30.0)
    before = await lag.count()
    await conn.execute("update howdah.node set beat_at = now() - interval '31 seconds' where id = 2")
    await conn.execute("update howdah.checkpoint set halted = true where part = 1")
    after = await lag.count()
    await lag._session.close()
    await app.close()

    assert before is not None
    [standing] = before.consumers
    assert standing.seconds > 0
    assert standing._replace(seconds=0.0) == ConsumerPosition("Billing", 4, 0.0, False, False, False, 0)
    assert after is not None
    assert (after.consumers[0].halted, after.consumers[0].unassigned) == (True, True)


async def test_without_consumers_nothing_is_said_about_them(app: Howdah, database: Database) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    await append(app)
    async with observed_node(app, database) as (_, observed):
        assert await observed.lag.count() is None
        found = await scrape(observed)

    names = {name for name, _ in found}
    assert not [name for name in names if name.startswith(("howdah_consumer", "howdah_log_head", "howdah_leader"))]
    assert value(found, "worker_slots", state="free") is not None


async def test_figures_that_are_too_old_are_not_shown(
    app: Howdah, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.consumer("Billing")
    async def billing(event: Any) -> None: ...

    async with observed_consumers(app, database) as observed:
        await counted(observed, unassigned=0)
        now = census.time.monotonic()
        monkeypatch.setattr(census.time, "monotonic", lambda: now + census.STALE + 1)
        shown = observed.lag.latest
        monkeypatch.undo()
        assert shown is None
        assert observed.lag.latest is not None


async def test_the_command_line_says_who_leads(app: Howdah) -> None:
    @app.consumer("Billing")
    async def billing(event: Any) -> None: ...

    worker = NodeProcess(app.node(quick()), quick(), database=app.database, metrics=("127.0.0.1", 0))
    async with worker._observed() as observed:
        assert isinstance(observed, NodeObserver)
        assert value(await scrape(observed), "leader") is None
        running = asyncio.create_task(worker._node.run())

        async def shown() -> Any:
            found = await scrape(observed)
            return value(found, "leader") == 1 and of(found, "unassigned") is not None

        await eventually(shown)
        worker._node.stop()
        await running


def test_any_number_of_consumers_stays_a_bounded_number_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [ConsumerPosition(f"consumer {n}", n, float(n), n == 1999, False, False, 1) for n in range(2000)]
    monkeypatch.setattr(ConsumerLag, "latest", LogPosition(1, 1, 0.0, many))
    metrics = Metrics(lag=ConsumerLag(Database("postgresql://"), dead=30.0))
    for each in many:
        facts = {"consumer": each.name, "part": 0, "events": 1, "position": 1, "seconds": 0.1}
        metrics.on_event("consumer.batch", facts)
        metrics.on_event("consumer.fail", {**facts, "error": ValueError()})
    found = samples(generate_latest(metrics).decode())

    for name in ("consumer_events_total", "consumer_failures_total", "consumer_lag_events"):
        assert len([each for each, _ in found if each == f"howdah_{name}"]) == 501
    assert of(found, "events_total", "other") == of(found, "parked_events", "other") == 1500
    assert (of(found, "lag_events", "other"), of(found, "halted", "other")) == (1999, 1)
    assert (of(found, "lag_events", "consumer 7"), of(found, "parked_events", "consumer 7")) == (7, 1)


async def _is_ready(observed: NodeObserver) -> bool:
    status, _ = await asyncio.to_thread(get, observed.port, "/readyz")
    return status == 200
