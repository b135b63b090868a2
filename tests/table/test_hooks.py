"""Hooks around the work, and the budget built on them."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from howdah import Budget, ConfigError, Outcome, Poison, Where, telemetry
from kit.node import drain, eventually, node

pytestmark = pytest.mark.anyio


async def count(conn, state):
    return await conn.fetchval("select count(*) from uploads where state = $1", state)


@pytest.mark.parametrize("plain", [False, True])
async def test_hooks_run_around_the_work_whatever_becomes_of_it(app, uploads, rows, plain):
    recorded = []
    table = app.table("uploads", max_attempts=1)

    class Plain:
        def before_execute(self, record):
            recorded.append(("before", record["n"]))
            if record["n"] == 3:
                raise ValueError("not ready")

        def execute(self, record):
            recorded.append(("execute", record["n"]))
            if record["n"] == 2:
                raise Poison("bad")

        def after_execute(self, record, outcome):
            recorded.append((outcome, record["n"]))

    class Async:
        async def before_execute(self, record):
            Plain.before_execute(self, record)

        async def execute(self, record):
            Plain.execute(self, record)

        async def after_execute(self, record, outcome):
            Plain.after_execute(self, record, outcome)

    table.handler(Plain if plain else Async)
    await rows.add(3)
    await drain(app, slots=1)

    assert recorded == [
        ("before", 1), ("execute", 1), (Outcome.OK, 1),
        ("before", 2), ("execute", 2), (Outcome.POISON, 2),
        ("before", 3), (Outcome.FAILED, 3),
    ]  # fmt: skip
    assert await rows.states() == ["completed", "failed", "failed"]
    assert (await rows.one(3))["failure_message"] == "ValueError: not ready"


async def test_a_coroutine_hook_of_a_plain_handler_runs_in_the_loop(app, uploads, rows):
    home = asyncio.get_running_loop()
    loops = []
    table = app.table("uploads")

    @table.handler
    class Mixed:
        async def before_execute(self, record):
            loops.append(asyncio.get_running_loop())

        def execute(self, record):
            assert loops

    await rows.add()
    await drain(app)
    assert loops == [home]
    assert await rows.states() == ["completed"]


async def test_after_execute_runs_after_a_cancellation_and_its_failure_changes_nothing(app, uploads, rows):
    recorded, failed = [], []
    stop = telemetry.subscribe(lambda name, facts: failed.append(facts["hook"]) if name == "hook.fail" else None)
    table = app.table("uploads")

    @table.handler
    class Process:
        async def execute(self, record):
            if record["n"] == 1:
                await asyncio.sleep(60)

        async def after_execute(self, record, outcome):
            recorded.append((record["n"], outcome))
            raise RuntimeError("hook")

    await rows.add(2)
    async with node(app):
        await eventually(lambda: count(uploads, "completed"))
        await rows.set(cancel=True)
        await eventually(lambda: count(uploads, "canceled"))
    stop()
    assert recorded == [(2, Outcome.OK), (1, Outcome.CANCELLED)]
    assert failed == ["after_execute", "after_execute"]


async def test_before_claim_says_not_now_yes_or_which(app, uploads, rows):
    answers: list[object] = [False, RuntimeError("broken"), "rubbish", Where("uploads.n = $1 -- odd", 3), True]
    seen = []
    table = app.table("uploads", where=Where("kind = $1", "zip"), poll=0.05)

    @table.handler
    class Process:
        async def before_claim(self):
            answer = answers.pop(0) if answers else True
            if isinstance(answer, Exception):
                raise answer
            return answer

        async def execute(self, record):
            seen.append(record["n"])

    await rows.add(4)
    async with node(app):
        await eventually(lambda: all_seen(seen, 4))
    assert seen[0] == 3


async def all_seen(seen, n):
    return len(seen) == n


async def test_rows_worked_on_at_once_never_overdraw_a_budget(app, uploads, rows):
    used = {"memory": 0, "rows": 0}
    most = 0
    budget = Budget(memory=10, tokens=3, cost={"memory": "size_mb", "tokens": "priority"})
    table = app.table("uploads", budget=budget, order_by=["id"], poll=5.0)

    @table.handler
    async def execute(record) -> None:
        nonlocal most
        used["memory"] += record["size_mb"]
        used["rows"] += record["priority"]
        most = max(most, used["memory"])
        assert used["memory"] <= 10
        assert used["rows"] <= 3
        await asyncio.sleep(0.01)
        used["memory"] -= record["size_mb"]
        used["rows"] -= record["priority"]

    await rows.add(60)
    await uploads.execute("update uploads set size_mb = 1 + (id * 7) % 10, priority = id % 2")
    async with node(app, slots=20), node(app, slots=20):  # of one process: they share it
        await eventually(lambda: complete(uploads, 60))
    assert most > 5
    assert budget.left == {"memory": 10, "tokens": 3}
    assert await uploads.fetchval("select sum(num_failures + num_resets) from uploads") == 0


async def complete(conn, n):
    return await count(conn, "completed") == n


async def test_a_big_row_does_not_hold_up_small_ones(app, uploads, rows):
    go, seen = asyncio.Event(), []
    table = app.table("uploads", budget=Budget(memory=10, cost={"memory": "size_mb"}), poll=0.1)

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])
        if record["n"] == 1:
            await go.wait()

    await rows.add(5, size_mb=2)
    await rows.set(1, size_mb=7)
    await rows.set(2, size_mb=9)
    async with node(app):
        await eventually(lambda: all_seen(seen, 4))
        assert sorted(seen) == [1, 3, 4, 5]
        assert (await rows.one(2))["state"] == "queued"
        go.set()
        await eventually(lambda: all_seen(seen, 5))


async def test_a_row_bigger_than_the_whole_is_reported(app, uploads, rows, caplog):
    emitted = []
    stop = telemetry.subscribe(lambda name, facts: emitted.append(facts) if name == "table.oversized" else None)
    table = app.table("uploads", budget=Budget(memory=10, cost={"memory": "size_mb"}))

    @table.handler
    async def execute(record) -> None: ...

    await rows.add(2, size_mb=11)
    await rows.set(2, size_mb=None)
    with caplog.at_level(logging.WARNING, "howdah"):
        await drain(app)
    stop()
    assert await rows.states() == ["queued", "completed"]
    assert emitted == [{"table": "uploads", "ids": [1]}]
    assert "bigger than the whole budget" in caplog.text


async def test_what_is_handed_back_unstarted_is_freed(app, uploads, rows, store_for):
    budget = Budget(memory=10, cost={"memory": "size_mb"})
    table = app.table("uploads", budget=budget)
    await rows.add(3, size_mb=4)
    store = await store_for(table)

    jobs = await store.claim(5, {})
    assert [job.id for job in jobs] == [1, 2]
    assert budget.left == {"memory": 2}
    await store.release([jobs[0].token])
    store.settle(set(), set())
    assert budget.left == {"memory": 10}


async def test_a_handler_may_be_an_object(app, uploads, rows):
    class Process:
        def __init__(self, seen):
            self.seen = seen

        async def execute(self, record):
            self.seen.append(record["id"])

    seen: list[int] = []
    app.table("uploads").handler(Process(seen))
    await rows.add(2)
    await drain(app)
    assert sorted(seen) == [1, 2]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cost": {}}, "needs a resource"),
        ({"memory": 5, "cost": {}}, "'memory' needs both"),
        ({"memory": 0, "cost": {"memory": "m"}}, "above zero"),
    ],
)
def test_budgets_that_cannot_work_are_refused(facts, words):
    with pytest.raises(ConfigError, match=words):
        Budget(**facts)


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_a_plain_hook_beside_a_coroutine_may_raise_anything(app, uploads, rows, error):
    """A future cannot carry a StopIteration before Python 3.12: the row stayed in processing for ever."""
    table = app.table("uploads", max_attempts=1)

    @table.handler
    class Mixed:
        def before_execute(self, record):
            if record["n"] == 1:
                raise error

        async def execute(self, record): ...

        def after_execute(self, record, outcome):
            raise error

    await rows.add(2)
    await drain(app, slots=1)

    assert await rows.states() == ["failed", "completed"]


@pytest.mark.parametrize("plain", [False, True])
async def test_an_account_kept_in_hooks_cannot_be_overdrawn_by_one_claim(app, uploads, rows, plain):
    table = app.table("uploads", order_by=["id"])

    class Account:
        left, least, together, most = 10, 10, 0, 0

        def before_claim(self):
            return Where("size_mb <= $1", self.left)

        def before_execute(self, record):
            Account.left -= record["size_mb"]
            Account.least = min(Account.least, Account.left)

        def after_execute(self, record, outcome):
            Account.left += record["size_mb"]

    class Plain(Account):
        def execute(self, record):
            Account.together += 1
            Account.most = max(Account.most, Account.together)
            time.sleep(0.02)
            Account.together -= 1

    class Async(Account):
        async def before_execute(self, record):
            await asyncio.sleep(0.01)
            Account.before_execute(self, record)

        async def execute(self, record):
            Account.together += 1
            Account.most = max(Account.most, Account.together)
            await asyncio.sleep(0.05)
            Account.together -= 1

    table.handler(Plain if plain else Async)
    await rows.add(20, size_mb=4)
    await drain(app)

    assert await rows.states() == ["completed"] * 20
    assert Account.least == 2, "two rows of 4 fit into 10"
    assert (Account.left, Account.most) == (10, 2)


async def test_rows_that_never_begin_do_not_stop_the_claims_of_such_a_handler(app, uploads, rows):
    table = app.table("uploads", order_by=["id"], max_attempts=1)

    class Account:
        def before_claim(self):
            return True

        async def before_execute(self, record):
            if record["n"] % 2:
                raise ValueError("odd")

        async def execute(self, record): ...

    table.handler(Account)
    await rows.add(6)
    await drain(app)

    assert await rows.states() == ["failed", "completed"] * 3


async def test_a_condition_without_other_hooks_still_claims_many_rows_at_once(app, uploads, rows):
    table = app.table("uploads")
    asked = []

    class Some:
        def before_claim(self):
            asked.append(1)
            return Where("n > 0")

        async def execute(self, record): ...

    table.handler(Some)
    await rows.add(40)
    await drain(app)

    assert await rows.states() == ["completed"] * 40
    assert len(asked) < 15
