"""Workers that go silent, and what becomes of their rows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from howdah import telemetry
from kit.node import eventually, node

pytestmark = pytest.mark.anyio


async def test_a_silent_row_goes_back_until_its_resets_are_used_up(app, uploads, rows, store_for):
    table = app.table("uploads", max_resets=2, reset_message="it kills its workers")
    store = await store_for(table)
    await rows.add()
    for _ in range(2):
        [job] = await store.claim(1, {})
        assert job.attempt == 1, "resets and failures are counted apart"
        assert await store.reset(10) == (0, 0), "it is not silent yet"
        await rows.silence()
        assert await store.reset(10) == (1, 0)
    await store.claim(1, {})
    await rows.silence()
    assert await store.reset(10) == (0, 1)

    row = await rows.one()
    assert (row["state"], row["num_resets"], row["num_failures"]) == ("failed", 2, 0)
    assert row["failure_message"] == "it kills its workers"
    assert row["finished_at"] is not None
    assert row["lease_token"] is None


async def test_a_silent_row_that_is_unwanted_is_cancelled(app, uploads, rows, store_for):
    store = await store_for(app.table("uploads"))
    await rows.add()
    await store.claim(1, {})
    await rows.silence()
    await rows.set(cancel=True)
    await store.reset(10)
    assert await rows.states() == ["canceled"]


async def test_a_row_that_never_beat_is_taken_by_its_start(app, uploads, rows, store_for):
    store = await store_for(app.table("uploads"))
    await rows.add(2, state="processing")
    await uploads.execute("update uploads set started_at = now() where id = 2")
    assert await store.reset(10) == (1, 0)
    assert await rows.states() == ["queued", "processing"]


async def test_a_reset_passes_over_locked_rows_and_is_told(app, uploads, rows, direct):
    emitted = []
    stop = telemetry.subscribe(lambda name, facts: emitted.append(facts) if name == "table.reset" else None)
    table = app.table("uploads", stalled_after=1.0, max_resets=1)

    @table.handler
    async def execute(record) -> None: ...

    await rows.add(120, state="processing", num_resets=1)
    await rows.add(130, state="processing")
    other = await direct.connect("other")
    async with other.transaction():
        await other.execute("select from uploads where id = 1 for update")
        async with node(app):
            await eventually(lambda: _all_but_one(uploads))
    await other.close()
    stop()
    assert sum(facts["reset"] for facts in emitted) == 130
    assert sum(facts["failed"] for facts in emitted) == 119
    assert {facts["table"] for facts in emitted} == {"uploads"}


async def _all_but_one(conn):
    return await conn.fetchval("select count(*) from uploads where state = 'processing'") == 1


async def test_a_row_longer_than_any_silence_runs_once(app, uploads, rows):
    table = app.table("uploads", stalled_after=2.5)
    runs = []

    @table.handler
    async def execute(record) -> None:
        runs.append(record["id"])
        time.sleep(3.5)  # the loop is blocked as well
        await asyncio.sleep(1.5)

    await rows.add()
    async with node(app), node(app):
        await eventually(lambda: _are(rows, "completed"))
    assert runs == [1]
    assert (await rows.one())["num_resets"] == 0


async def _are(rows, *states):
    return await rows.states() == list(states)


async def test_a_node_that_cannot_beat_stops_its_own_rows(app, uploads, rows):
    table = app.table("uploads", stalled_after=1.0)
    stopped = asyncio.Event()

    @table.handler
    async def execute(record) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    await rows.add()
    async with node(app, upkeep=False) as running_node:
        await eventually(lambda: _are(rows, "processing"))
        running_node.renewals[1].statement = "select 1 / 0"
        await asyncio.wait_for(stopped.wait(), 30)
        running_node.stop(now=True)
    row = await rows.one()
    assert (row["state"], row["num_resets"]) == ("queued", 0), "no node has taken it, so it is handed back uncharged"


async def test_a_heartbeat_is_one_statement_for_all_rows(app, uploads, rows, store_for):
    from howdah.table.table import TableHeartbeat

    store = await store_for(app.table("uploads"))
    await rows.add(5)
    jobs = await store.claim(5, {})
    before = [(await rows.one(id))["last_heartbeat_at"] for id in range(1, 6)]
    lost, unwanted = [], []

    class Worker:
        running = ()

        def tokens(self):
            return [jobs[0].token]

        def renewed(self, tokens, at): ...

        def lose_jobs(self, keys, reason):
            lost.extend(keys)

        def cancel(self, ids):
            unwanted.extend(ids)

    await rows.set(2, state="queued")
    await rows.set(3, lease_token=999_999)
    await rows.set(4, cancel=True)
    await uploads.execute("delete from uploads where id = 5")
    (await TableHeartbeat(store._plan, store, Worker())(store._resets))()

    assert [(await rows.one(1))["last_heartbeat_at"] > before[0], (await rows.one(3))["last_heartbeat_at"] == before[2]]
    assert sorted(id for _, id in lost) == [2, 3, 5]
    assert unwanted == [4]
    lost.clear()
    (await TableHeartbeat(store._plan, store, Worker())(store._resets))()
    assert lost == [], "it is told once"


@pytest.mark.stories
@pytest.mark.parametrize(
    ("transactional", "fence", "marks"),
    [
        (True, True, 1),
        (False, True, 2),  # at least once to start; its outcome is refused all the same
        (True, False, 2),  # the negative control: without the fence the zombie's mark counts
    ],
)
async def test_a_frozen_node_wakes_up_and_changes_nothing(
    database, uploads, rows, transactional, fence, marks, tmp_path
):
    await uploads.execute("create table mark (n int, pid int)")
    await rows.add()
    env = {
        **os.environ,
        "HOWDAH_DSN": database.dsn,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "TRANSACTIONAL": "1" if transactional else "",
        "FENCE": "1" if fence else "",
        "ONCE": str(tmp_path / "frozen"),
    }
    nodes = [subprocess.Popen([sys.executable, "-m", "table.zombie"], env=env)]
    try:
        await eventually(lambda: _stopped(nodes[0].pid), 60)
        nodes.append(subprocess.Popen([sys.executable, "-m", "table.zombie"], env=env))
        await eventually(lambda: _are(rows, "completed"), 60)
        before = await rows.one()
        nodes[0].send_signal(signal.SIGCONT)
        await eventually(lambda: _marked(uploads, marks))
        await asyncio.sleep(2.0)
    finally:
        for process in nodes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    after = await rows.one()
    assert await uploads.fetchval("select count(*) from mark") == marks
    assert (after["num_resets"], after["num_failures"]) == (1, 0)
    if fence:
        assert after == before


async def _marked(conn, times):
    """Whether there are so many marks, and no transaction is open in which there may be another."""
    return await conn.fetchval(
        """select (select count(*) from mark) >= $1 and not exists (
            select from pg_stat_activity
            where xact_start is not null and pid <> pg_backend_pid() and datname = current_database())""",
        times,
    )


async def _works(conn, pid):
    """Whether a node works; or everything is done."""
    return await _done(conn, 300) or await conn.fetchval(
        "select exists (select from mark where pid = $1) and exists (select from uploads where state = 'processing')",
        pid,
    )


async def _stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.stories
@pytest.mark.parametrize("budget", ["", "1"])
async def test_the_rows_of_a_killed_node_are_worked_on_elsewhere(database, uploads, rows, budget):
    await uploads.execute("create table mark (n int, pid int)")
    await rows.add(300)
    env = {
        **os.environ,
        "HOWDAH_DSN": database.dsn,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "TRANSACTIONAL": "1",
        "FENCE": "1",
        "PAUSE": "0.1",
        "BUDGET": budget,
    }
    start = lambda: subprocess.Popen([sys.executable, "-m", "table.zombie"], env=env)  # noqa: E731
    nodes = [start(), start()]
    try:
        for _ in range(3):
            await eventually(lambda: _works(uploads, nodes[0].pid), 60)  # or nothing is left to do
            nodes[0].kill()
            nodes.pop(0).wait()
            nodes.append(start())
        await eventually(lambda: _done(uploads, 300), 90)
    finally:
        for process in nodes:
            process.kill()
            process.wait()
    assert await uploads.fetchval("select count(*) from mark") == 300
    assert await uploads.fetchval("select count(distinct n) from mark") == 300
    assert await uploads.fetchval("select sum(num_resets) from uploads") > 0, "no kill hit a row"


async def _done(conn, n):
    return await conn.fetchval("select count(*) from uploads where state = 'completed'") == n


@pytest.mark.parametrize("fence", [True, False])
async def test_the_token_is_what_refuses_a_zombie(app, uploads, rows, store_for, monkeypatch, fence):
    """With the negative control: without the comparison the zombie's word counts."""
    from howdah.outcome import Ack, Outcome
    from howdah.table.statement import read

    if not fence:
        monkeypatch.setitem(read(), "ack", read()["ack"].replace(" and found.token = told.token", ""))
    table = app.table("uploads")
    slow, fast = await store_for(table), await store_for(table)
    await rows.add()
    [late] = await slow.claim(1, {})
    await rows.silence()
    await fast.reset(10)
    await fast.claim(1, {})

    accepted = await slow.ack([Ack(late, Outcome.FAILED, 5, error="E")], [late.token])
    assert len(accepted) == (0 if fence else 1)
    assert await rows.states() == ["processing" if fence else "failed"]


async def test_cancels_and_requeues_by_hand_race_with_the_work(app, uploads, rows):
    """Whatever people do meanwhile: no row is stuck, and none ends where nobody put it."""
    import random

    table = app.table("uploads", retry_after=0, max_attempts=50, poll=0.05)

    @table.handler
    async def execute(record):
        await asyncio.sleep(random.uniform(0, 0.01))
        if random.random() < 0.1:
            raise ValueError

    await rows.add(300)
    async with node(app, slots=10), node(app, slots=10):
        for _ in range(60):
            id = random.randint(1, 300)
            deed = random.choice(
                [
                    "update uploads set cancel = true",
                    "update uploads set state = 'queued', cancel = false",
                    "delete from uploads",
                ]
            )
            await uploads.execute(f"{deed} where id = $1", id)
            await asyncio.sleep(0.01)
        await eventually(lambda: _settled(uploads), 30)
    assert await uploads.fetchval("select count(*) from uploads where state = 'canceled' and not cancel") == 0


async def _settled(conn):
    return not await conn.fetchval("select count(*) from uploads where state not in ('completed', 'canceled')")
