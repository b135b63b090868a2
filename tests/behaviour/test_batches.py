"""Batch tasks: one call for many jobs, with an outcome of its own for each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import pytest

from howdah import (
    Backoff,
    Cancel,
    ConfigError,
    HowdahError,
    Job,
    Poison,
    RateLimited,
    Secret,
    Snooze,
    Transaction,
    current_job,
    job_log,
    progress,
    telemetry,
)
from howdah.dashboard.pages.enqueue import fields_of
from kit.node import drain, ended, eventually, node, state

pytestmark = pytest.mark.anyio

SLOW = Backoff(first=100, jitter=0)
"""A retry that does not come before the end of a test."""


@dataclass
class Item:
    sku: str
    count: int = 1


@pytest.fixture
async def ledger(conn):
    await conn.execute("create table ledger (n bigint)")

    async def rows():
        return [row[0] for row in await conn.fetch("select n from ledger order by 1")]

    return rows


async def states(conn):
    return [row[0] for row in await conn.fetch("select state from howdah.jobs order by id")]


async def charged(conn):
    """The arguments of the jobs that used an attempt without success."""
    found = await conn.fetch("select (args->>'n')::int from howdah.jobs where id in (select id from howdah.attempt)")
    return sorted(row[0] for row in found)


# ---------------------------------------------------------------- calls


async def test_one_call_gets_the_arguments_of_many_jobs(app, conn):
    calls = []

    @app.task(batch=500)
    async def add(n: list[int]) -> list[int]:
        calls.append(n)
        return [each * 2 for each in n]

    await app.enqueue_many(add.job(n) for n in range(30))
    await drain(app)

    assert calls == [list(range(30))]
    assert await states(conn) == ["done"] * 30
    results = await conn.fetch("select result from howdah.jobs order by id")
    assert [int(row[0]) for row in results] == [2 * n for n in range(30)]
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_a_batch_has_no_more_jobs_than_asked_for(app, conn):
    calls = []

    @app.task(batch=8)
    async def add(n: list[int]) -> None:
        calls.append(len(n))

    await app.enqueue_many(add.job(n) for n in range(30))
    await drain(app)

    assert sum(calls) == 30
    assert max(calls) == 8
    assert await states(conn) == ["done"] * 30


async def test_claims_grow_to_full_batches(app, conn):
    calls = []

    @app.task(batch=500)
    async def add(n: list[int]) -> None:
        calls.append(len(n))

    await app.enqueue_many(add.job(n) for n in range(3000))
    await drain(app, slots=10)

    assert sum(calls) == 3000
    assert calls.count(500) >= 4, calls


async def test_each_parameter_is_a_list_and_jobs_can_be_taken_as_well(app, conn):
    seen = []

    @app.task(batch=10)
    def ship(order: Sequence[int], item: list[Item], jobs: Sequence[Job]) -> None:
        seen.append((order, [(each.sku, each.count) for each in item], [job.id for job in jobs]))

    made = await app.enqueue_many([ship.job(1, Item("a", 3)), ship.job(order=2, item={"sku": "b"})])
    await drain(app)

    assert seen == [([1, 2], [("a", 3), ("b", 1)], [each.id for each in made])]
    assert await states(conn) == ["done"] * 2


async def test_a_handler_can_take_only_the_jobs(app, conn):
    seen = []

    @app.task(batch=10)
    async def work(jobs: list[Job]) -> None:
        seen.extend(job.args for job in jobs)
        with pytest.raises(HowdahError, match="a batch of jobs is running here"):
            current_job()

    await work.enqueue(a=1, b=[2])
    await drain(app)

    assert seen == [{"a": 1, "b": [2]}]
    assert await states(conn) == ["done"]


async def test_tasks_with_and_without_a_batch_run_side_by_side(app, conn):
    calls = []

    @app.task(batch=100)
    async def many(n: list[int]) -> None:
        calls.append(("many", len(n)))

    @app.task
    async def single(n: int) -> None:
        calls.append(("single", 1))

    await app.enqueue_many((many if n % 2 else single).job(n) for n in range(400))
    await drain(app)

    assert await states(conn) == ["done"] * 400
    assert sum(size for name, size in calls if name == "many") == 200
    assert sum(name == "many" for name, _ in calls) < 20


@pytest.mark.parametrize("declare", ["plain", "default", "none", "process", "zero", "alone"])
async def test_a_declaration_that_cannot_work_is_rejected(app, declare):
    async def plain(n: int) -> None: ...

    async def default(n: list[int] = []) -> None: ...  # noqa: B006

    async def none() -> None: ...

    async def fine(n: list[int]) -> None: ...

    def process(n: list[int]) -> None: ...

    options = {"process": {"executor": "process"}, "zero": {"batch": 0}, "alone": {"batch": None, "within": 1}}
    functions = {"plain": plain, "default": default, "none": none, "process": process}
    with pytest.raises(ConfigError, match="batch"):
        app.task(**{"batch": 5, **options.get(declare, {})})(functions.get(declare, fine))


# ---------------------------------------------------------------- outcomes


async def test_each_job_has_an_outcome_of_its_own(app, conn):
    @app.task(batch=10, retry=SLOW)
    async def judge(n: list[int]) -> list[object]:
        return [None, "value", Snooze(100), Cancel("no"), ValueError("bad"), Poison("never")]

    made = await app.enqueue_many(judge.job(n) for n in range(6))
    await drain(app)

    assert await states(conn) == ["done", "done", "queued", "cancelled", "queued", "failed"]
    attempts = await conn.fetch("select id, outcome, error from howdah.attempt order by id")
    assert [tuple(row) for row in attempts] == [
        (made[3].id, "cancelled", "Cancel"),
        (made[4].id, "retry", "ValueError"),
        (made[5].id, "failed", "Poison"),
    ]


@pytest.mark.parametrize("value", [[1], 17, {"a": 1}])
async def test_a_value_that_is_no_list_of_outcomes_fails_every_job(app, conn, value):
    calls = []

    @app.task(batch=10, max_attempts=1)
    async def wrong(n: list[int]) -> object:
        calls.append(n)
        return value

    await app.enqueue_many(wrong.job(n) for n in range(4))
    await drain(app)

    assert calls == [[0, 1, 2, 3]]
    assert await states(conn) == ["failed"] * 4


async def test_arguments_that_do_not_fit_fail_without_the_others(app, conn):
    calls = []

    @app.task(batch=10)
    async def add(n: list[int]) -> None:
        calls.append(n)

    await app.enqueue_many([add.job(1), add.job(2)])
    await conn.execute("""select howdah.enqueue('add', '{"n": "text"}')""")
    await drain(app)

    assert calls == [[1, 2]]
    assert await states(conn) == ["done", "done", "failed"]


# ---------------------------------------------------------------- a bad job among good ones


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("bad", [set(), {0}, {19}, {7}, {3, 4, 17}, set(range(20))], ids=lambda bad: str(sorted(bad)))
async def test_halving_charges_exactly_the_jobs_that_fail(app, conn, ledger, bad, transactional):
    calls = []

    async def work(tx: Transaction, n: list[int]) -> None:
        calls.append(len(n))
        await tx.executemany("insert into ledger values ($1)", [(each,) for each in n])
        if bad & {*n}:
            raise RuntimeError(f"bad: {sorted(bad & {*n})}")

    async def plain(n: list[int]) -> None:
        calls.append(len(n))
        if bad & {*n}:
            raise RuntimeError("bad")

    task = app.task(batch=100, transactional=transactional, retry=SLOW, name="work")(work if transactional else plain)
    await app.enqueue_many(task.job(n) for n in range(20))
    await drain(app)

    assert await charged(conn) == sorted(bad)
    assert await states(conn) == ["queued" if n in bad else "done" for n in range(20)]
    attempts = await conn.fetch("select distinct attempt from howdah.done")
    assert [row[0] for row in attempts] == ([1] if len(bad) < 20 else [])
    assert len(calls) <= 1 + 2 * 5 * len(bad)
    if transactional:
        assert await ledger() == [n for n in range(20) if n not in bad]
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_a_dependency_that_asks_to_slow_down_is_not_asked_again(app, conn):
    calls = []

    @app.task(batch=10)
    async def limited(n: list[int]) -> None:
        calls.append(n)
        raise RateLimited("slow down", retry_after=60, hold=True)

    await app.enqueue_many(limited.job(n) for n in range(8))
    await drain(app)

    assert len(calls) == 1
    assert await states(conn) == ["queued"] * 8
    assert await conn.fetchval("select count(*) from howdah.attempt where outcome = 'retry'") == 8


# ---------------------------------------------------------------- transactions


async def test_writes_and_completion_of_a_batch_are_one_commit(app, conn, ledger):
    commits = []

    @app.task(batch=1000, transactional=True)
    async def note(tx: Transaction, n: list[int]) -> list[int]:
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        commits.append(await tx.fetchval("select pg_current_xact_id()::text"))
        return n

    await app.enqueue_many(note.using(key=f"k{n}").job(n) for n in range(50))
    await drain(app)

    assert await ledger() == list(range(50))
    assert len(commits) == 1
    found = await conn.fetch("select distinct xmin::text from howdah.done union select distinct xmin::text from ledger")
    assert len(found) == 1, "one transaction wrote both"
    assert await conn.fetchval("select count(*) from howdah.job_key") == 0
    results = await conn.fetch("select result from howdah.jobs order by id")
    assert [int(row[0]) for row in results] == list(range(50))


async def test_jobs_that_did_not_succeed_are_left_out_of_the_commit(app, conn, ledger):
    @app.task(batch=10, transactional=True, retry=SLOW)
    async def note(tx: Transaction, n: list[int]) -> list[object]:
        good = [each for each in n if each % 2]
        await tx.execute("insert into ledger select unnest($1::bigint[])", good)
        return [None if each % 2 else Snooze(100) if each else ValueError("zero") for each in n]

    await app.enqueue_many(note.job(n) for n in range(4))
    await drain(app)

    assert await ledger() == [1, 3]
    assert await states(conn) == ["queued", "done", "queued", "done"]
    assert await charged(conn) == [0]


async def test_a_broken_connection_charges_nothing_and_everything_runs_again(app, conn, ledger):
    calls = []

    @app.task(batch=10, transactional=True, max_attempts=1)
    async def note(tx: Transaction, n: list[int]) -> None:
        calls.append(len(n))
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        if len(calls) == 1:
            pid = await tx.fetchval("select pg_backend_pid()")
            other = await asyncpg.connect(app.database.dsn, statement_cache_size=0)
            await other.execute("select pg_terminate_backend($1, 10000)", pid)
            await other.close()
            await tx.execute("select 1")

    made = await app.enqueue_many(note.job(n) for n in range(6))
    async with node(app):
        for each in made:
            assert (await ended(conn, each.id))["state"] == "done"

    assert calls[0] == 6
    assert await ledger() == list(range(6))
    assert await charged(conn) == []


async def test_a_batch_whose_commit_was_not_answered_is_not_done_again(app, conn, ledger, monkeypatch):
    execute, cut, calls, outcomes = asyncpg.Connection.execute, [], [], []
    unsubscribe = telemetry.subscribe(
        lambda name, facts: outcomes.extend(ack.outcome.value for ack in facts["acks"]) if name == "job.ack" else None
    )

    async def cut_off(self, statement, *args, **options):
        status = await execute(self, statement, *args, **options)
        if statement.lower().startswith("commit") and calls and not cut:
            cut.append(1)
            self.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return status

    monkeypatch.setattr(asyncpg.Connection, "execute", cut_off)

    @app.task(batch=10, transactional=True, max_attempts=1)
    async def note(tx: Transaction, n: list[int]) -> None:
        calls.append(n)
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)

    made = await app.enqueue_many(note.job(n) for n in range(6))
    async with node(app, lease=10.0):
        for each in made:
            assert (await ended(conn, each.id))["state"] == "done"

        async def reported():
            return len(outcomes) == 6 and not await conn.fetchval("select count(*) from howdah.lease")

        await eventually(reported)
    unsubscribe()

    assert (cut, len(calls), outcomes) == ([1], 1, ["ok"] * 6)
    assert await ledger() == list(range(6))
    assert await charged(conn) == []


async def test_a_job_that_is_retried_meanwhile_is_left_out_of_the_commit(app, conn, ledger):
    """It has left its lease: its row in `gone` is all that tells."""
    inside, gate, calls = asyncio.Event(), asyncio.Event(), []

    @app.task(batch=10, transactional=True)
    async def note(tx: Transaction, n: list[int]) -> None:
        calls.append(n)
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        inside.set()
        if len(calls) == 1:
            await gate.wait()

    made = await app.enqueue_many(note.job(n) for n in range(4))
    async with node(app, upkeep=False, heartbeat=60.0, lease=120.0):
        await asyncio.wait_for(inside.wait(), 30)
        await conn.execute("insert into howdah.gone select token, $1 from howdah.lease", made[1].id)
        gate.set()
        await ended(conn, made[3].id)

    assert calls == [[0, 1, 2, 3], [0, 2, 3]]
    assert await ledger() == [0, 2, 3]


# ---------------------------------------------------------------- cancel, timeout, stop


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_cancelled_job_leaves_the_batch_and_the_others_run_again(app, conn, ledger, transactional):
    calls, inside = [], asyncio.Event()

    async def work(n: list[int]) -> None:
        calls.append(n)
        if 2 in n:
            inside.set()
            await asyncio.sleep(60)

    async def within(tx: Transaction, n: list[int]) -> None:
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        await work(n)

    task = app.task(batch=10, transactional=transactional, name="work")(within if transactional else work)
    made = await app.enqueue_many(task.job(n) for n in range(5))
    async with node(app):
        await asyncio.wait_for(inside.wait(), 30)
        await app.admin.cancel([made[2].id])
        for each in made:
            await ended(conn, each.id)

    assert calls == [[0, 1, 2, 3, 4], [0, 1, 3, 4]]
    assert await states(conn) == ["done", "done", "cancelled", "done", "done"]
    if transactional:
        assert await ledger() == [0, 1, 3, 4]


async def test_a_timeout_charges_only_the_job_that_is_too_slow(app, conn):
    calls = []

    @app.task(batch=10, timeout=0.5, max_attempts=1)
    async def work(n: list[int]) -> None:
        calls.append(n)
        if 3 in n:
            await asyncio.sleep(60)

    made = await app.enqueue_many(work.job(n) for n in range(5))
    async with node(app):
        rows = [await ended(conn, each.id) for each in made]

    assert [row["state"] for row in rows] == ["done", "done", "done", "failed", "done"]
    assert rows[3]["error"].startswith("TimeoutError: the job ran longer than its timeout of 0.5 s")
    assert calls[-1] == [4]


async def test_a_thread_that_is_too_slow_charges_its_whole_batch(app, conn):
    release = []

    @app.task(batch=10, timeout=0.3, max_attempts=1)
    def work(n: list[int]) -> None:
        while not release:
            time.sleep(0.05)

    made = await app.enqueue_many(work.job(n) for n in range(3))
    async with node(app):
        rows = [await ended(conn, each.id) for each in made]
        release.append(True)

    assert [row["state"] for row in rows] == ["failed"] * 3


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_stop_releases_the_jobs_of_a_batch_uncharged(app, conn, ledger, transactional):
    inside = asyncio.Event()

    async def work(n: list[int]) -> None:
        inside.set()
        await asyncio.sleep(60)

    async def within(tx: Transaction, n: list[int]) -> None:
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        await work(n)

    task = app.task(batch=10, transactional=transactional, name="work")(within if transactional else work)
    await app.enqueue_many(task.job(n) for n in range(5))
    async with node(app, grace=0.2):
        await asyncio.wait_for(inside.wait(), 30)

    assert await states(conn) == ["queued"] * 5
    assert await charged(conn) == []
    assert await ledger() == []
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


async def test_a_stop_lets_a_running_batch_finish(app, conn, ledger):
    inside, calls = asyncio.Event(), []

    @app.task(batch=10, transactional=True, retry=SLOW)
    async def note(tx: Transaction, n: list[int]) -> None:
        calls.append(n)
        inside.set()
        await asyncio.sleep(0.05)
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        if 2 in n:
            raise RuntimeError("bad")

    await app.enqueue_many(note.job(n) for n in range(8))
    async with node(app):
        await asyncio.wait_for(inside.wait(), 30)

    assert await states(conn) == ["queued" if n == 2 else "done" for n in range(8)]
    assert await ledger() == [0, 1, 3, 4, 5, 6, 7]


# ---------------------------------------------------------------- leases


async def test_jobs_of_a_lost_lease_are_left_out_and_the_others_commit(app, conn, ledger):
    """The batch gathers jobs of two leases; one of them expires while the handler runs."""
    inside, gate, calls = asyncio.Event(), asyncio.Event(), []

    @app.task(batch=10, within=1.0, transactional=True)
    async def note(tx: Transaction, n: list[int]) -> None:
        calls.append(n)
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        inside.set()
        if len(calls) == 1:
            await gate.wait()

    async def leases():
        return await conn.fetchval("select count(*) from howdah.lease")

    async with node(app, upkeep=False, heartbeat=60.0, lease=120.0):
        first = await note.enqueue(1)
        await eventually(leases)
        second = await note.enqueue(2)
        await asyncio.wait_for(inside.wait(), 30)
        assert calls == [[1, 2]]
        await conn.execute("select howdah.pause('default')")
        await conn.execute(
            "update howdah.lease set expires_at = now() - interval '1 second' where first_id = $1", first.id
        )
        assert tuple(await conn.fetchrow("select * from howdah.reset()")) == (1, 1, 0)
        gate.set()
        await ended(conn, second.id)

    assert calls == [[1, 2], [2]]
    assert await ledger() == [2]
    assert await state(conn, first.id) == "queued"


async def test_two_nodes_share_the_jobs_and_each_is_done_once(app, conn, ledger):
    @app.task(batch=50, transactional=True)
    async def note(tx: Transaction, n: list[int]) -> None:
        await tx.execute("insert into ledger select unnest($1::bigint[])", n)
        if 77 in n:
            raise Poison("bad")

    await app.enqueue_many(note.job(n) for n in range(1000))
    async with node(app), node(app):

        async def over():
            return await conn.fetchval("select count(*) = 1000 from howdah.done")

        await eventually(over)

    assert await ledger() == [n for n in range(1000) if n != 77]
    assert await charged(conn) == [77]


# ---------------------------------------------------------------- waiting for a full batch


async def test_jobs_wait_for_others_only_if_asked_to(app, conn):
    calls, began = [], []

    @app.task(batch=3, within=30.0)
    async def work(n: list[int]) -> None:
        calls.append(n)
        began.append(time.monotonic())

    async with node(app):
        for n in range(3):
            await work.enqueue(n)
            await asyncio.sleep(0.1)
        await eventually(lambda: states_are(conn, ["done"] * 3))

    assert calls == [[0, 1, 2]], "a full batch does not wait"


async def states_are(conn, wanted):
    return await states(conn) == wanted


async def test_a_batch_that_is_not_full_starts_when_the_wait_is_over(app, conn):
    calls = []

    @app.task(batch=100, within=1.0)
    async def work(n: list[int]) -> None:
        calls.append(n)

    async with node(app):
        began = time.monotonic()
        await work.enqueue(1)
        await work.enqueue(2)
        await eventually(lambda: states_are(conn, ["done"] * 2))

    assert calls == [[1, 2]]
    assert time.monotonic() - began > 0.9


async def test_jobs_that_wait_for_others_are_released_at_a_stop(app, conn):
    @app.task(batch=100, within=60.0)
    async def work(n: list[int]) -> None: ...

    async def leased():
        return await conn.fetchval("select count(*) from howdah.lease")

    made = await work.enqueue(1)
    async with node(app):
        await eventually(leased)

    assert await state(conn, made.id) == "queued"
    assert await conn.fetchval("select count(*) from howdah.lease") == 0


# ---------------------------------------------------------------- logs, secrets, traces


async def test_a_line_is_logged_for_one_job_of_a_batch(app, conn):
    @app.task(batch=10)
    async def work(n: list[int], jobs: list[Job]) -> None:
        job_log("for all of them")
        job_log("only this one", job=jobs[1])
        progress(0.5, "half", job=jobs[1])

    made = await app.enqueue_many(work.job(n) for n in range(3))
    await drain(app)

    lines = await conn.fetch("select id, line from howdah.job_log")
    assert [(row["id"], row["line"]) for row in lines] == [(made[1].id, "only this one")]


async def test_secrets_of_every_job_are_hidden_in_the_errors_of_a_batch(app, conn):
    @app.task(batch=10, max_attempts=1)
    async def login(password: list[Secret[str]]) -> list[object]:
        everything = " ".join(each.reveal() for each in password)
        return [ValueError(everything) for _ in password]

    await app.enqueue_many(login.job(Secret(text)) for text in ("sesame-open", "hunter-2-now"))
    await drain(app)

    errors = [row[0] for row in await conn.fetch("select error from howdah.jobs")]
    assert errors == ["ValueError: *** ***"] * 2


async def test_a_handler_that_exits_or_cancels_itself_is_an_ordinary_failure(app, conn):
    @app.task(batch=10, max_attempts=1)
    async def work(n: list[int]) -> None:
        if 1 in n:
            raise SystemExit(3)
        if 2 in n:
            raise asyncio.CancelledError

    await app.enqueue_many(work.job(n) for n in range(5))
    await drain(app)

    assert await states(conn) == ["done", "failed", "failed", "done", "done"]


async def test_the_form_of_the_dashboard_asks_for_one_element(app):
    @app.task(batch=10)
    async def ship(order: list[int], note: Sequence[str], jobs: list[Job]) -> None: ...

    asked = fields_of(ship)

    assert [(field.name, field.type, field.plain) for field in asked] == [
        ("order", "int", False),
        ("note", "str", True),
    ]
