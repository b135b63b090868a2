"""Nodes that are killed and frozen in the middle of batches: nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from kit.node import eventually
from kit.node_processes import LEASE, NodeProcesses, app, effects, frozen_batch
from stories.test_killed import finished, marked, marks, stopped, without_leases  # noqa: F401 - a fixture

pytestmark = [pytest.mark.anyio, pytest.mark.stories]


@pytest.mark.timeout(300)
async def test_batches_while_a_node_is_killed_every_two_seconds(database, conn, marks):  # noqa: F811
    jobs = 20_000
    await app.enqueue_many(effects.job(n) for n in range(jobs))
    killed = before = 0
    with NodeProcesses(database.dsn, SLOTS="2") as processes:
        for _ in range(3):
            processes.start()
        until = time.monotonic() + 240
        while not await finished(conn, jobs) and time.monotonic() < until:
            await asyncio.sleep(2.0)
            done = await conn.fetchval("select count(*) from howdah.done")
            if before + 200 <= done < jobs:
                processes.kill_one()
                processes.start()
                killed, before = killed + 1, done
        await eventually(lambda: finished(conn, jobs))
        await eventually(lambda: without_leases(conn))

    assert killed >= 1
    assert await marks() == dict.fromkeys(range(jobs), 1)
    charged = await conn.fetch(
        "select (j.args->>'n')::int from howdah.attempt a join howdah.job j using (id) where a.outcome = 'retry'"
    )
    assert {row[0] % 97 for row in charged} == {0}, "only bad jobs were charged"
    assert await conn.fetchval("select count(*) from howdah.done where state <> 'd'") == 0


@pytest.mark.parametrize(
    ("idle", "fence", "times"),
    [
        (1.0, True, 1),
        (100.0, True, 1),  # without the server's guard and deaf to its heartbeat: the fence alone must hold
        (100.0, False, 2),  # the negative control: without the fence the marks of the frozen node count
    ],
)
async def test_a_batch_of_a_frozen_node_changes_nothing(database, conn, marks, idle, fence, times):  # noqa: F811
    await app.enqueue_many(frozen_batch.job(n) for n in range(5))
    with NodeProcesses(database.dsn, IDLE=str(idle), UNFENCED="" if fence else "1") as processes:
        first = processes.start(HEEDLESS="1" if idle > 1 else "")
        await eventually(lambda: stopped(first.pid), 60)
        processes.start()
        await eventually(lambda: finished(conn, 5), 60)
        await asyncio.sleep(LEASE)
        os.kill(first.pid, 18)  # SIGCONT
        await eventually(lambda: marked(conn, 5 * times))
        await asyncio.sleep(1.5)

    assert await marks() == dict.fromkeys(range(5), times)
