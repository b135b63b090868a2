"""Nodes that are killed and frozen: nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from kit.node import ended, eventually
from kit.node_processes import LEASE, NodeProcesses, app, deadly, effect, frozen

pytestmark = [pytest.mark.anyio, pytest.mark.stories]


@pytest.fixture
async def marks(database, conn):
    app.connect_to(database.dsn)
    await conn.execute("create table mark (n int not null, attempt int, token bigint)")

    async def count():
        rows = await conn.fetch("select n, count(*) as times from mark group by n")
        return {row["n"]: row["times"] for row in rows}

    yield count
    await app.close()


async def finished(conn, n):
    return await conn.fetchval("select count(*) from howdah.done") == n


async def without_leases(conn):
    return await conn.fetchval("select count(*) from howdah.lease") == 0


@pytest.mark.timeout(300)
async def test_twenty_thousand_jobs_while_a_node_is_killed_every_two_seconds(database, conn, marks):
    jobs = 20_000
    await app.enqueue_many(effect.job(n, pause=0.004) for n in range(jobs))
    killed = before = 0
    with NodeProcesses(database.dsn, SLOTS="8") as processes:
        for _ in range(4):
            processes.start()
        until = time.monotonic() + 240
        while not await finished(conn, jobs) and time.monotonic() < until:
            await asyncio.sleep(2.0)
            done = await conn.fetchval("select count(*) from howdah.done")
            # where a process takes longer to start than it lives, nothing would ever be done
            if before + 200 <= done < jobs:
                processes.kill_one()
                processes.start()
                killed, before = killed + 1, done
        await eventually(lambda: finished(conn, jobs))
        await eventually(lambda: without_leases(conn))  # a node reports the end of a lease after its last job

    times = await marks()
    assert killed >= 2
    assert len(times) == jobs
    assert set(times.values()) == {1}
    assert await conn.fetchval("select count(*) from howdah.done where state <> 'd'") == 0
    assert (
        await conn.fetchval(
            "select count(*) from howdah.done d join howdah.job j using (id) where attempt > max_attempts"
        )
        == 0
    )
    assert await conn.fetchval("select count(*) from howdah.attempt where outcome = 'lost'") > 0, "no kill hit a job"


@pytest.mark.parametrize(
    ("idle", "fence", "times"),
    [
        (1.0, True, 1),
        (100.0, True, 1),  # without the server's guard and deaf to its heartbeat: the fence alone must hold
        (100.0, False, 2),  # the negative control: without the fence the zombie's mark counts
    ],
)
async def test_a_frozen_node_wakes_up_and_changes_nothing(database, conn, marks, idle, fence, times):
    for function in () if fence else ("ack_in_transaction", "ack_keyless"):
        await conn.execute(
            f"""create or replace function howdah.{function}(
                p_node int, p_token bigint, p_id bigint, p_attempt int, p_took bigint, p_result json default null)
            returns void language sql as $$
                insert into howdah.done (id, attempt, state, node, took_us, result)
                values (p_id, p_attempt, 'd', p_node, p_took, p_result) on conflict do nothing $$"""
        )
    made = await frozen.enqueue(1)
    with NodeProcesses(database.dsn, IDLE=str(idle)) as processes:
        first = processes.start(HEEDLESS="1" if idle > 1 else "")
        await eventually(lambda: stopped(first.pid), 60)
        processes.start()
        row = await ended(conn, made.id, 60)
        await asyncio.sleep(LEASE)
        os.kill(first.pid, 18)  # SIGCONT
        await eventually(lambda: marked(conn, times))
        await asyncio.sleep(1.5)

    after = await conn.fetchrow("select * from howdah.jobs where id = $1", made.id)
    assert (row["state"], row["attempt"], row["resets"]) == ("done", 2, 1)
    assert (after["attempt"], after["node"]) == (row["attempt"], row["node"])
    assert await marks() == {1: times}


async def marked(conn, times):
    """Whether there are so many marks, and no transaction is open in which there may be another."""
    return await conn.fetchval(
        """select (select count(*) from mark) >= $1 and not exists (
            select from pg_stat_activity
            where xact_start is not null and pid <> pg_backend_pid() and datname = current_database()
              and application_name = 'howdah pool')""",
        times,
    )


async def stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.timeout(200)
async def test_a_job_that_kills_every_node_ends_after_its_attempts(database, conn, marks, tmp_path):
    starts = tmp_path / "starts"
    made = await deadly.enqueue(str(starts))
    with NodeProcesses(database.dsn) as processes:
        nodes = [processes.start(), processes.start()]
        until = time.monotonic() + 150
        while time.monotonic() < until:
            for node in nodes:
                if node.poll() is not None:
                    nodes.remove(node)
                    nodes.append(processes.start())
            if await conn.fetchval("select count(*) from howdah.done"):
                break
            await asyncio.sleep(0.1)
    row = await conn.fetchrow("select * from howdah.jobs where id = $1", made.id)

    assert (row["state"], row["attempt"], row["resets"]) == ("failed", 3, 3)
    assert starts.read_text().split() == ["1", "2", "3"]


async def test_the_jobs_of_a_killed_node_run_again_within_the_lease_and_five_seconds(database, conn, marks):
    await app.enqueue_many(effect.job(n, pause=60.0 if n < 5 else 0.0) for n in range(5))
    with NodeProcesses(database.dsn) as processes:
        first = processes.start()
        await eventually(lambda: running(conn, 5), 60)
        processes.start()
        await eventually(lambda: two_nodes(conn), 60)  # how long a process takes to start is not what is promised
        killed = time.monotonic()
        processes.kill(first)
        await eventually(lambda: again(conn), 60)
        took = time.monotonic() - killed
    assert took < LEASE + 5


async def running(conn, n):
    return await conn.fetchval("select coalesce(sum(hi - lo), 0) from howdah.lease, unnest(los, his) r(lo, hi)") == n


async def two_nodes(conn):
    return await conn.fetchval("select count(*) from howdah.node where state <> 'offline'") == 2


async def again(conn):
    return await conn.fetchval("select count(*) from howdah.lease where 2 = any(attempts)") > 0


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_wrong_client_clock_changes_nothing(database, conn, marks, hours):
    far = await effect.using(delay=3600).enqueue(2)
    made = await app.enqueue_many(effect.job(n, pause=0.01) for n in range(3, 200))
    with NodeProcesses(database.dsn, CLOCK=str(hours * 3600), LEASE="20") as processes:
        processes.start()
        processes.start(CLOCK="0")
        await eventually(lambda: two_nodes(conn), 60)
        soon = await effect.using(delay=1.0).enqueue(1)
        await eventually(lambda: finished(conn, 198), 60)

    assert await conn.fetchval("select count(*) from howdah.attempt") == 0, "no lease was lost"
    assert (await conn.fetchrow("select state from howdah.jobs where id = $1", far.id))["state"] == "queued"
    early = await conn.fetchval("select finished_at - enqueued_at from howdah.jobs where id = $1", soon.id)
    assert 1.0 <= early.total_seconds() < 30
    assert len(made) == 197


async def test_a_stopped_node_finishes_what_it_runs(database, conn, marks):
    await app.enqueue_many(effect.job(n, pause=0.5) for n in range(40))
    with NodeProcesses(database.dsn) as processes:
        process = processes.start()
        await eventually(lambda: some(conn), 60)
        process.terminate()
        assert process.wait(60) == 0
        processes.nodes.remove(process)
    times = await marks()
    done = await conn.fetchval("select count(*) from howdah.done")
    left = await conn.fetchval("select coalesce(sum(hi - lo), 0) from howdah.ready where attempt = 0")
    assert set(times.values()) == {1}
    assert len(times) == done
    assert done + left == 40
    assert done > 0


async def some(conn):
    return await conn.fetchval("select count(*) from howdah.done") > 0
