"""How attempts end: every way a handler can, and what becomes of the job."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time

import pytest

from howdah import Backoff, Cancel, ConfigError, Outcome, Poison, Retry, Snooze, Transaction, current_job, telemetry
from kit import process_handlers
from kit.node import drain, ended, eventually, job, node, state

pytestmark = pytest.mark.anyio
AT_ONCE = Backoff(first=0, jitter=0)


async def history(conn, id):
    rows = await conn.fetch("select * from howdah.attempt where id = $1 order by ended_at, attempt", id)
    return [(row["attempt"], row["outcome"], row["error"], row["message"]) for row in rows]


async def test_a_result_is_kept_as_json(app, conn):
    @app.task
    async def answer() -> dict[str, object]:
        return {"n": 42, "text": 'a"\\\n'}

    made = await answer.enqueue()
    await drain(app)

    row = await job(conn, made.id)
    assert (row["state"], row["attempt"], row["result"]) == ("done", 1, b'{"n":42,"text":"a\\"\\\\\\n"}')
    assert row["started_at"] <= row["finished_at"]


async def test_a_result_that_cannot_be_kept_does_not_undo_the_work(app, conn):
    @app.task
    async def huge() -> str:
        return "x" * 2_000_000

    @app.task
    async def strange() -> object:
        return object()

    ids = [(await huge.enqueue()).id, (await strange.enqueue()).id]
    await drain(app)

    for id in ids:
        row = await job(conn, id)
        assert (row["state"], row["result"]) == ("done", None)
        assert row["error"].startswith("ResultNotStored")


async def test_a_failure_is_retried_with_backoff_until_attempts_are_used_up(app, conn):
    @app.task(max_attempts=3, retry=AT_ONCE)
    async def fails() -> None:
        raise ValueError(f"attempt {current_job().attempt}")

    made = await fails.enqueue()
    async with node(app):
        row = await ended(conn, made.id)

    assert (row["state"], row["attempt"], row["resets"]) == ("failed", 3, 0)
    assert row["error"] == "ValueError: attempt 3"
    assert await history(conn, made.id) == [
        (1, "retry", "ValueError", "attempt 1"),
        (2, "retry", "ValueError", "attempt 2"),
        (3, "failed", "ValueError", "attempt 3"),
    ]
    trace = await conn.fetchval("select traceback from howdah.attempt where id = $1 limit 1", made.id)
    assert "in fails" in trace
    assert "howdah/worker" not in trace


async def test_a_retry_waits_for_its_backoff_and_then_starts_on_time(app, conn):
    started: list[float] = []

    @app.task(retry=Backoff(first=0.6, jitter=0))
    async def once_more() -> None:
        started.append(time.monotonic())
        if len(started) == 1:
            raise RuntimeError("again")

    made = await once_more.enqueue()
    async with node(app, poll=30.0):
        assert (await ended(conn, made.id))["state"] == "done"

    assert 0.55 < started[1] - started[0] < 1.1


async def test_the_default_backoff_is_the_documented_one(app, conn):
    @app.task
    async def fails() -> None:
        raise RuntimeError

    made = await fails.enqueue()
    await drain(app)

    wait = await conn.fetchval(
        "select extract(epoch from due_at - now())::float8 from howdah.later where id = $1", made.id
    )
    assert 30 * 0.8 - 5 < wait < 30 * 1.2
    assert await state(conn, made.id) == "queued"


async def test_poison_fails_at_once(app, conn):
    @app.task
    async def poisoned() -> None:
        raise Poison("no such order")

    made = await poisoned.enqueue()
    await drain(app)

    row = await job(conn, made.id)
    assert (row["state"], row["attempt"], row["error"]) == ("failed", 1, "Poison: no such order")


async def test_retries_can_differ_by_error(app, conn):
    class Busy(Exception):
        retry_after = 120

    @app.task(retry={KeyError: None, ValueError: Backoff(first=1000, jitter=0)})
    async def fails(how: str) -> None:
        raise {"key": KeyError("k"), "value": ValueError("v"), "busy": Busy("b"), "asked": Retry("r", after=77)}[how]

    ids = {how: (await fails.enqueue(how)).id for how in ("key", "value", "busy", "asked")}
    await drain(app)

    rows = await conn.fetch("select id, extract(epoch from due_at - now())::float8 as wait from howdah.later")
    wait = {row["id"]: row["wait"] for row in rows}
    assert await state(conn, ids["key"]) == "failed"
    assert wait[ids["value"]] == pytest.approx(1000, abs=5)
    assert wait[ids["busy"]] == pytest.approx(120, abs=5)
    assert wait[ids["asked"]] == pytest.approx(77, abs=5)


async def test_a_snooze_uses_no_attempt(app, conn):
    runs: list[int] = []

    @app.task(max_attempts=1)
    async def sleepy() -> Snooze | None:
        runs.append(current_job().attempt)
        return Snooze(0.1) if len(runs) < 4 else None

    made = await sleepy.enqueue()
    async with node(app):
        assert (await ended(conn, made.id))["state"] == "done"
    assert runs == [1, 1, 1, 1]


async def test_a_handler_can_cancel_its_job(app, conn):
    @app.task
    async def unwanted() -> Cancel:
        return Cancel("the order is gone")

    made = await unwanted.enqueue()
    await drain(app)

    row = await job(conn, made.id)
    assert (row["state"], row["error"]) == ("cancelled", "Cancel: the order is gone")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration])
@pytest.mark.parametrize("plain", [False, True])
async def test_the_node_survives_whatever_a_handler_raises(app, conn, error, plain):
    if plain:

        @app.task(max_attempts=1)
        def bad() -> None:
            raise error("bad")
    else:

        @app.task(max_attempts=1)
        async def bad() -> None:  # type: ignore[no-redef]
            raise error("bad")

    @app.task
    async def good() -> None: ...

    async with node(app):
        one = await bad.enqueue()
        row = await ended(conn, one.id)
        two = await good.enqueue()
        assert (await ended(conn, two.id))["state"] == "done"

    assert row["state"] == "failed"
    assert error.__name__ in row["error"] or "RuntimeError" in row["error"]  # a coroutine turns StopIteration into one


async def test_sys_exit_in_a_thread_is_a_failure(app, conn):
    @app.task(max_attempts=1)
    def leaves() -> None:
        sys.exit(3)

    made = await leaves.enqueue()
    await drain(app)
    assert (await job(conn, made.id))["error"] == "SystemExit: 3"


async def test_plain_functions_run_in_threads_beside_each_other(app, conn):
    together = threading.Barrier(4, timeout=30)

    @app.task
    def meets() -> str:
        together.wait()
        return threading.current_thread().name

    made = await app.enqueue_many(meets.job() for _ in range(4))
    await drain(app)

    names = {(await job(conn, each.id))["result"] for each in made}
    assert len(names) == 4


async def test_a_handler_over_its_timeout_is_cancelled_and_retried(app, conn):
    cleaned = asyncio.Event()

    @app.task(timeout=0.2, max_attempts=2, retry=AT_ONCE)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    made = await slow.enqueue()
    async with node(app):
        row = await ended(conn, made.id)

    assert cleaned.is_set()
    assert (row["state"], row["attempt"]) == ("failed", 2)
    assert row["error"] == "TimeoutError: the job ran longer than its timeout of 0.2 s"


async def test_a_thread_that_cannot_be_stopped_keeps_its_slot_but_not_its_job(app, conn):
    release = threading.Event()

    @app.task(timeout=0.2, max_attempts=1)
    def stubborn() -> None:
        release.wait(20)

    @app.task(timeout=0.5)
    def next_one() -> None: ...

    made = await stubborn.enqueue()
    after = await next_one.enqueue()
    async with node(app, slots=1) as running_node:
        row = await ended(conn, made.id)
        assert (row["state"], row["error"].split(":")[0]) == ("failed", "TimeoutError")
        await asyncio.sleep(0.7)
        assert await state(conn, after.id) == "queued", "the only slot is taken"
        release.set()
        assert (await ended(conn, after.id))["state"] == "done"
        await eventually(lambda: _nothing_runs(running_node))


async def _nothing_runs(running_node):
    return not running_node.running


async def test_what_a_handler_sets_in_its_context_stays_there(app, conn):
    from contextvars import ContextVar

    var: ContextVar[str] = ContextVar("var", default="clean")

    @app.task
    async def dirty() -> str:
        before = var.get()
        var.set("dirty")
        return before

    made = await app.enqueue_many(dirty.job() for _ in range(20))
    await drain(app, slots=1)
    assert {(await job(conn, each.id))["result"] for each in made} == {b'"clean"'}


async def test_secrets_in_errors_are_hidden_and_errors_are_bounded(app, conn):
    @app.task(max_attempts=1)
    async def leaks() -> None:
        raise RuntimeError("cannot log in to postgresql://me:hunter2@db/x with password=swordfish " + "x" * 100_000)

    made = await leaks.enqueue()
    await drain(app)

    [row] = await conn.fetch("select * from howdah.attempt where id = $1", made.id)
    kept = row["message"] + row["traceback"] + (await job(conn, made.id))["error"]
    assert "hunter2" not in kept
    assert "swordfish" not in kept
    assert len(kept) < 20_000


async def test_every_outcome_is_told(app, conn):
    recorded: list[tuple[str, Outcome]] = []
    unsubscribe = telemetry.subscribe(
        lambda name, facts: (
            recorded.extend((ack.job.kind, ack.outcome) for ack in facts["acks"]) if name == "job.ack" else None
        )
    )

    @app.task(name="t", max_attempts=2, retry=Backoff(first=100))
    async def does(what: str) -> object:
        if what == "raise":
            raise ValueError
        if what == "poison":
            raise Poison
        return {"snooze": Snooze(100), "cancel": Cancel(), "ok": None}[what]

    await does.using(max_attempts=1).enqueue("raise")
    for what in ("raise", "poison", "snooze", "cancel", "ok"):
        await does.enqueue(what)
    await drain(app)
    unsubscribe()

    assert sorted(outcome for _, outcome in recorded) == ["cancelled", "failed", "ok", "poison", "retry", "snoozed"]


# ---------------------------------------------------------------- processes


async def test_a_process_task_runs_elsewhere(app, conn):
    elsewhere = app.task(executor="process")(process_handlers.where)
    made = [await elsewhere.enqueue(x=i) for i in range(3)]
    await drain(app, slots=2)

    for i, each in enumerate(made):
        row = await job(conn, each.id)
        assert row["state"] == "done", row["error"]
        pid, x, id = eval(row["result"])
        assert (x, id) == (i, each.id)
        assert pid != os.getpid()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("raises", "ValueError: on purpose"),
        ("exits", "SystemExit: 7"),
        ("dies", "exited with code 9"),
        ("is_killed", "killed by SIGKILL, maybe out of memory"),
        ("segfaults", "killed by SIGSEGV"),
        ("runs_out_of_memory", "MemoryError|SIGKILL|exited"),
    ],
)
async def test_whatever_happens_to_a_process_the_node_survives(app, conn, function, words):
    task = app.task(executor="process", max_attempts=1, name="deed")(getattr(process_handlers, function))
    made = await task.enqueue()
    fine = app.task(executor="process", name="fine")(process_handlers.where)
    after = await fine.enqueue(x=1)
    await drain(app, slots=1)

    row = await job(conn, made.id)
    assert row["state"] == "failed"
    assert any(word in row["error"] for word in words.split("|")), row["error"]
    assert await state(conn, after.id) == "done"


async def test_a_process_over_its_timeout_is_killed(app, conn):
    task = app.task(executor="process", max_attempts=1, timeout=1.0, name="deed")(process_handlers.loops_for_ever)
    made = await task.enqueue()
    began = time.monotonic()
    async with node(app):
        row = await ended(conn, made.id, 20)

    assert row["error"].startswith("TimeoutError")
    assert time.monotonic() - began < 15


async def test_a_process_can_snooze_poison_and_choose_its_delay(app, conn):
    task = app.task(executor="process", name="deed", retry={KeyError: None})(process_handlers.chooses)
    ids = {what: (await task.enqueue(what=what)).id for what in ("snooze", "poison", "cancel", "key", "delay")}
    await drain(app, slots=1)

    assert await state(conn, ids["poison"]) == "failed"
    assert await state(conn, ids["key"]) == "failed"
    assert await state(conn, ids["cancel"]) == "cancelled"
    rows = await conn.fetch("select id, attempt, extract(epoch from due_at - now())::float8 as wait from howdah.later")
    later = {row["id"]: (row["attempt"], row["wait"]) for row in rows}
    assert later[ids["snooze"]] == (0, pytest.approx(500, abs=20))
    assert later[ids["delay"]] == (1, pytest.approx(900, abs=20))


def test_a_task_cannot_be_both_transactional_and_elsewhere(app):
    with pytest.raises(ConfigError, match="async def"):

        @app.task(transactional=True)
        def plain(tx: Transaction) -> None: ...

    with pytest.raises(ConfigError, match="annotated `Transaction`"):

        @app.task(transactional=True)
        async def nothing() -> None: ...

    with pytest.raises(ConfigError, match="set transactional=True"):

        @app.task
        async def forgot(tx: Transaction) -> None: ...


@pytest.mark.parametrize("plain", [False, True])
async def test_the_timeout_of_a_task_holds_for_jobs_enqueued_by_sql(app, conn, plain):
    @app.task(timeout=0.2)
    async def endless() -> None:
        await asyncio.sleep(600)

    @app.task(timeout=0.2)
    def in_thread() -> None:
        time.sleep(3)

    kind = "in_thread" if plain else "endless"
    first = await conn.fetchval("select id from howdah.enqueue($1, max_attempts => 1)", kind)
    longer = await conn.fetchval("select id from howdah.enqueue($1, max_attempts => 1, timeout => 0.6)", kind)
    async with node(app):
        assert (await ended(conn, first))["state"] == "failed"
        assert (await ended(conn, longer))["state"] == "failed"

    assert "its timeout of 0.2 s" in (await app.admin.get(first)).error
    assert "its timeout of 0.6 s" in (await app.admin.get(longer)).error
