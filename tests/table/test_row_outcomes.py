"""How attempts on rows end, and what becomes of the row."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import Backoff, Cancel, ConfigError, Outcome, Poison, Retry, Snooze, Transaction, current_job, telemetry
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio


async def over(rows, *states):
    async def check():
        return await rows.states() == list(states)

    await eventually(check)


async def due_in(conn, id=1):
    return await conn.fetchval(
        "select extract(epoch from process_after - now())::float8 from uploads where id = $1", id
    )


async def test_a_failure_waits_and_then_fails_for_good(app, uploads, rows):
    table = app.table("uploads", max_attempts=3, retry_after=0)

    @table.handler
    async def execute(record) -> None:
        raise ValueError(f"attempt {current_job().attempt}")

    await rows.add()
    async with node(app):
        await over(rows, "failed")

    row = await rows.one()
    assert (row["num_failures"], row["num_resets"], row["failure_message"]) == (3, 0, "ValueError: attempt 3")


async def test_wrapped_poison_fails_a_row_at_once_and_is_named(app, uploads, rows):
    table = app.table("uploads", max_attempts=3)

    async def poison() -> None:
        raise Poison("not a zip")

    @table.handler
    async def execute(record) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(poison())

    await rows.add()
    await drain(app)

    row = await rows.one()
    assert (row["state"], row["num_failures"], row["failure_message"]) == ("failed", 1, "Poison: not a zip")


async def test_a_failed_attempt_is_errored_until_its_time_comes(app, uploads, rows):
    table = app.table("uploads", retry_after=60)

    @table.handler
    async def execute(record) -> None:
        raise ValueError("busy")

    await rows.add()
    await drain(app)

    row = await rows.one()
    assert (row["state"], row["num_failures"], row["failure_message"]) == ("errored", 1, "ValueError: busy")
    assert await due_in(uploads) == pytest.approx(60, abs=2)
    assert row["finished_at"] is not None


async def test_a_retry_starts_on_time(app, uploads, rows):
    started = []
    table = app.table("uploads", retry_after=0.6, poll=30.0)

    @table.handler
    async def execute(record) -> None:
        started.append(time.monotonic())
        if len(started) == 1:
            raise RuntimeError("again")

    await rows.add()
    async with node(app):
        await over(rows, "completed")
    assert 0.55 < started[1] - started[0] < 0.9
    row = await rows.one()
    assert (row["num_failures"], row["failure_message"]) == (1, None)


async def test_every_outcome_has_its_state(app, uploads, rows):
    outcomes = {}
    stop = telemetry.subscribe(
        lambda name, facts: (
            outcomes.update((ack.job.id, ack.outcome) for ack in facts["acks"]) if name == "job.ack" else None
        )
    )
    table = app.table("uploads", retry={KeyError: None, ValueError: Backoff(first=500, jitter=0)})

    @table.handler
    async def execute(record):
        match record["n"]:
            case 1:
                return None
            case 2:
                raise Poison("bad")
            case 3:
                return Cancel("unwanted")
            case 4:
                return Snooze(200)
            case 5:
                raise KeyError("k")
            case 6:
                raise ValueError("v")
            case 7:
                raise Retry("later", after=77)
            case 8:
                return {"a": "result"}

    await rows.add(8)
    await drain(app)
    stop()

    assert await rows.states() == [
        "completed", "failed", "canceled", "queued", "failed", "errored", "errored", "completed",
    ]  # fmt: skip
    assert [(await rows.one(id))["num_failures"] for id in range(1, 9)] == [0, 1, 0, 0, 1, 1, 1, 0]
    assert [(await rows.one(id))["failure_message"] for id in (2, 3, 4)] == ["Poison: bad", "Cancel: unwanted", None]
    assert await due_in(uploads, 4) == pytest.approx(200, abs=2)
    assert await due_in(uploads, 6) == pytest.approx(500, abs=2)
    assert await due_in(uploads, 7) == pytest.approx(77, abs=2)
    snoozed = await rows.one(4)
    assert (snoozed["started_at"], snoozed["finished_at"]) == (None, None)
    assert outcomes[4] is Outcome.SNOOZED


async def test_an_attempt_over_its_time_is_retried_and_says_why(app, uploads, rows):
    table = app.table("uploads", max_runtime=0.2, retry_after=100)

    @table.handler
    async def execute(record) -> None:
        await asyncio.sleep(30)

    await rows.add()
    async with node(app):
        await over(rows, "errored")
    assert (await rows.one())["failure_message"] == "TimeoutError: the job ran longer than its timeout of 0.2 s"


async def test_a_shutdown_hands_rows_back_uncharged(app, uploads, rows):
    table = app.table("uploads")

    @table.handler
    async def execute(record) -> None:
        await asyncio.sleep(60)

    await rows.add(3)
    async with node(app, grace=0.1) as running_node:
        await over(rows, *["processing"] * 3)
        running_node.stop()
    assert await rows.states() == ["queued"] * 3
    row = await rows.one()
    assert (row["num_failures"], row["num_resets"], row["started_at"]) == (0, 0, None)


async def test_a_running_row_is_cancelled_by_its_flag(app, uploads, rows):
    table = app.table("uploads")
    stopped = asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    await rows.add()
    async with node(app):
        await over(rows, "processing")
        await rows.set(cancel=True)
        await over(rows, "canceled")
        assert stopped.is_set()
    row = await rows.one()
    assert (row["num_failures"], row["finished_at"] is not None) == (0, True)


async def test_a_waiting_row_is_cancelled_at_once(app, uploads, rows):
    table = app.table("uploads")

    @table.handler
    async def execute(record) -> None: ...

    await rows.add(3, process_after=None)
    await uploads.execute("update uploads set process_after = now() + interval '1 hour', cancel = id < 3")
    await rows.set(2, state="errored")
    async with node(app):
        await over(rows, "canceled", "canceled", "queued")


@pytest.mark.parametrize(("ends", "state"), [("fail", "canceled"), ("snooze", "canceled"), ("succeed", "completed")])
async def test_a_flag_set_meanwhile_counts_unless_the_work_is_done(app, uploads, rows, ends, state):
    table = app.table("uploads", heartbeat=10)
    go = asyncio.Event()

    @table.handler
    async def execute(record):
        await go.wait()
        if ends == "fail":
            raise ValueError
        return Snooze(1) if ends == "snooze" else None

    await rows.add()
    async with node(app, heartbeat=1.0):  # too slow to tell
        await over(rows, "processing")
        await rows.set(cancel=True)
        go.set()
        await over(rows, state)


@pytest.mark.parametrize("how", ["deleted", "requeued"])
async def test_a_row_taken_away_by_hand_stops_its_handler(app, uploads, rows, how):
    lost = []
    stop = telemetry.subscribe(lambda name, facts: lost.extend(facts["jobs"]) if name == "job.lost" else None)
    table = app.table("uploads")
    starts, ends = [], []

    @table.handler
    async def execute(record) -> None:
        starts.append(record["id"])
        if len(starts) > 2:
            return
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(record["id"])

    await rows.add(2)
    async with node(app) as running_node:
        await eventually(lambda: _told(len(starts) == 2))
        if how == "deleted":
            await uploads.execute("delete from uploads where id = 1")
        else:
            await uploads.execute("update uploads set state = 'queued' where id = 1")
        await eventually(lambda: _told(lost))
        await eventually(lambda: _told(ends))
        assert [attempt.job.id for attempt in running_node.running if not attempt.finished][-1] == 2, (
            "the other goes on"
        )
        if how == "requeued":
            await over(rows, "completed", "processing")
        running_node.stop(now=True)
    stop()
    assert ends[0] == 1
    assert [job.id for job in lost] == [1]


async def _told(what):
    return what


async def test_threads_and_processes_work_on_rows(app, uploads, rows):
    import threading

    from table import process_handler

    process_handler.app.connect_to(app.database.dsn)
    names = []
    table = app.table("uploads")

    @table.handler
    def execute(record) -> None:
        names.append(threading.current_thread().name)

    await rows.add(2)
    await drain(app)
    assert all(name.startswith("howdah-job") for name in names)
    assert await rows.states() == ["completed", "completed"]

    await rows.add(3)
    await drain(process_handler.app, slots=2)
    assert (await rows.states())[2:] == ["completed", "failed", "completed"]
    assert (await rows.one(4))["failure_message"].startswith("Poison: in process ")


async def test_a_transactional_handler_commits_with_its_row(app, uploads, rows):
    await uploads.execute("create table ledger (id bigint)")
    table = app.table("uploads", transactional=True, max_attempts=2, retry_after=0)

    @table.handler
    class Process:
        async def execute(self, record, tx: Transaction):
            await tx.execute("insert into ledger values ($1)", record["id"])
            if record["id"] == 2:
                raise ValueError("no")
            return Snooze(100) if record["id"] == 3 else None

    await rows.add(3)
    async with node(app):
        await over(rows, "completed", "failed", "queued")
    assert [row["id"] for row in await uploads.fetch("select id from ledger")] == [1]


async def test_a_transaction_whose_row_is_lost_rolls_back(app, uploads, rows):
    await uploads.execute("create table ledger (id bigint)")
    table = app.table("uploads", transactional=True, heartbeat=10)
    inside, go = asyncio.Event(), asyncio.Event()

    @table.handler
    async def execute(record, tx: Transaction) -> None:
        await tx.execute("insert into ledger values ($1)", record["id"])
        inside.set()
        await go.wait()

    await rows.add()
    async with node(app, upkeep=False, heartbeat=1.0):
        await asyncio.wait_for(inside.wait(), 30)
        await uploads.execute("update uploads set state = 'completed', lease_token = null, failure_message = 'other'")
        go.set()
        await asyncio.sleep(0.3)
    assert await uploads.fetchval("select count(*) from ledger") == 0
    assert (await rows.one())["failure_message"] == "other"


async def test_a_handler_that_locks_its_own_row_keeps_it(app, uploads, rows):
    table = app.table("uploads", transactional=True, stalled_after=2.5, heartbeat=0.2)

    @table.handler
    async def execute(record, tx: Transaction) -> None:
        await tx.execute("update uploads set kind = 'seen' where id = $1", record["id"])
        await asyncio.sleep(4.5)

    await rows.add()
    async with node(app):
        await over(rows, "completed")
    row = await rows.one()
    assert (row["num_resets"], row["num_failures"], row["kind"]) == (0, 0, "seen")


def test_handlers_that_cannot_work_are_refused(app):
    with pytest.raises(ConfigError, match="needs a method execute"):
        app.table("a").handler(type("Nothing", (), {}))
    with pytest.raises(ConfigError, match="set transactional=True"):

        @app.table("b").handler
        async def takes_tx(record, tx: Transaction) -> None: ...

    with pytest.raises(ConfigError, match="must take a parameter `tx: Transaction`"):

        @app.table("c", transactional=True).handler
        async def no_tx(record) -> None: ...

    with pytest.raises(ConfigError, match="must be `async def`"):

        @app.table("d", transactional=True).handler
        def plain(record, tx) -> None: ...

    with pytest.raises(ConfigError, match="must take a record"):

        @app.table("e").handler
        async def two(record, other) -> None: ...

    with pytest.raises(ConfigError, match="has no handler"):
        app.node()
    with pytest.raises(ConfigError, match="two tables or tasks"):
        app.table("a")
