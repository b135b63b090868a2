"""Tables of the application's own are in the metrics like queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from howdah import Columns, Howdah, Where
from howdah.cli.node import NodeProcess
from howdah.observe.failure_log import subscribe_logs
from howdah.observe.node import NodeObserver, observe_node
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import QueueDepth
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from howdah.table import ddl
from howdah.table.admin import counting
from howdah.table.table import OpenTableSource
from kit.node import eventually, node, quick
from observe.scraping import samples, scrape, status_of, value

pytestmark = pytest.mark.anyio

HOSTILE = "up\"lo'ads; drop --"


async def create(conn: Any, table: Any) -> None:
    for statement in ddl.create(table.options):
        await conn.execute(statement)


@asynccontextmanager
async def observed_tables(app: Howdah, database: Database) -> AsyncIterator[NodeObserver]:
    """A node with tables, observed as the command line does."""
    async with node(app) as running_node:
        status = replace(
            status_of(running_node),
            tables=lambda: [counting(front.plan) for front in running_node.open if isinstance(front, OpenTableSource)],
        )
        async with observe_node(database, status) as observed:

            async def opened() -> bool:
                return running_node.ready

            await eventually(opened)
            yield observed


async def test_what_waits_in_a_table_is_shown_like_a_queue(app: Howdah, conn: Any, database: Database) -> None:
    table = app.table(
        f"{identifier(HOSTILE)} u", name="uploads", columns=Columns(state="status"), where=Where("u.id < $1", 100)
    )
    await create(conn, table)
    go_on, began = asyncio.Event(), asyncio.Event()

    @table.handler
    async def execute(record: dict[str, Any]) -> None:
        began.set()
        await go_on.wait()

    quoted = identifier(HOSTILE)
    await conn.execute(f"insert into {quoted} default values")
    async with observed_tables(app, database) as observed:
        await asyncio.wait_for(began.wait(), 30)
        await conn.execute(f"insert into {quoted} (status) select 'completed' from generate_series(1, 10)")
        await conn.execute(f"insert into {quoted} (process_after) values (now() + interval '1 hour')")
        await conn.execute(f"insert into {quoted} (id) overriding system value values (1000)")
        await observed.depth.count()
        found = await scrape(observed)
        go_on.set()

        async def processed() -> Any:
            after = await scrape(observed)
            return value(after, "worker_jobs_processed_total", kind="uploads", outcome="ok") == 1

        await eventually(processed)

    assert value(found, "queue_jobs", queue="uploads", state="running") == 1
    assert value(found, "queue_jobs", queue="uploads", state="queued") == 0
    assert value(found, "queue_jobs", queue="uploads", state="scheduled") == 1
    assert value(found, "queue_oldest_seconds", queue="uploads") == 0
    assert value(found, "worker_in_flight", kind="uploads") == 1


async def test_a_table_that_is_gone_hides_no_other(app: Howdah, conn: Any, database: Database) -> None:
    first, second = app.table("first"), app.table("second", where=Where("false"))
    for table in (first, second):
        await create(conn, table)

        @table.handler
        async def execute(record: dict[str, Any]) -> None: ...

    async with node(app) as running_node:

        async def opened() -> bool:
            return len(running_node.open) == 3

        await eventually(opened)
        tables = [counting(front.plan) for front in running_node.open if isinstance(front, OpenTableSource)]
    await conn.execute("drop table first")
    await conn.execute("insert into second (queued_at) values (now() - interval '1 minute')")
    statement = tables[1][1].replace("false", "true")
    depth = QueueDepth(database, tables=lambda: [tables[0], ("second", statement, ())])

    with pytest.raises(Exception, match=r'relation "public\.first" does not exist'):
        await depth.count()
    [queue] = depth.queues
    assert (queue.name, queue.queued, queue.scheduled, queue.running) == ("second", 1, 0, 0)
    assert queue.oldest == pytest.approx(60, abs=30)


async def test_the_command_line_counts_the_tables_of_its_node(app: Howdah, conn: Any) -> None:
    table = app.table("uploads")
    await create(conn, table)

    @table.handler
    async def execute(record: dict[str, Any]) -> None: ...

    await conn.execute("insert into uploads (process_after) values (now() + interval '1 hour')")
    worker = NodeProcess(app.node(quick()), quick(), database=app.database, metrics=("127.0.0.1", 0))
    running = asyncio.create_task(worker._node.run())
    async with worker._observed() as observed:
        assert isinstance(observed, NodeObserver)

        async def shown() -> Any:
            return value(await scrape(observed), "queue_jobs", queue="uploads", state="scheduled") == 1

        await eventually(shown)
        worker._node.stop()
        await running


def test_resets_and_failed_hooks_are_counted() -> None:
    metrics = Metrics()
    metrics.on_event("table.reset", {"table": "uploads", "reset": 3, "failed": 1})
    metrics.on_event("table.reset", {"table": "uploads", "reset": 2, "failed": 0})
    metrics.on_event("hook.fail", {"kind": "uploads", "hook": "after_execute", "error": ValueError()})

    found = samples(generate_latest(metrics).decode())
    assert value(found, "table_resets_total", table="uploads") == 5
    assert value(found, "table_reset_failures_total", table="uploads") == 1
    assert value(found, "hook_failures_total", kind="uploads", hook="after_execute") == 1


async def test_rows_of_silent_workers_are_counted_when_they_are_taken_back(
    app: Howdah, conn: Any, database: Database
) -> None:
    table = app.table("uploads", max_resets=1, stalled_after=2)
    await create(conn, table)

    @table.handler
    async def execute(record: dict[str, Any]) -> None: ...

    await conn.execute(
        "insert into uploads (state, num_resets, last_heartbeat_at)"
        " select 'processing', i, now() - interval '1 hour' from generate_series(0, 1) i"
    )
    async with observed_tables(app, database) as observed:

        async def taken_back() -> Any:
            found = await scrape(observed)
            names = ("table_resets_total", "table_reset_failures_total")
            return [value(found, name, table="uploads") for name in names] == [1, 1]

        await eventually(taken_back)


def test_a_row_whose_id_is_text_has_a_line_in_the_log(caplog: Any) -> None:
    from howdah import telemetry
    from howdah.job import Job

    stop = subscribe_logs()
    job = Job("a-7", "uploads", "uploads", 1, 3, 1, b"{}")
    with caplog.at_level("INFO", "howdah"):
        telemetry.emit("job.ack", acks=[Ack(job, Outcome.FAILED, 1, error="ValueError", message="no")])
        telemetry.emit("table.reset", table="uploads", reset=2, failed=1)
    stop()

    assert "job a-7 (uploads) failed for good" in caplog.text
    assert "took back rows of silent workers in table uploads: 2 requeued, 1 failed" in caplog.text
