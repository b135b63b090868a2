"""A node frozen in the middle of its upkeep holds nobody up."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from kit.node import eventually
from kit.node_processes import NodeProcesses, app, effect

pytestmark = [pytest.mark.anyio, pytest.mark.stories]


@pytest.mark.timeout(300)
async def test_nodes_frozen_at_any_moment_of_their_start_hold_nobody_up(database, conn):
    """Every start makes a partition, drops another, looks for schedules: all that takes locks."""
    app.connect_to(database.dsn)
    await conn.execute("create table mark (n int not null, attempt int, token bigint)")
    made = 0
    with NodeProcesses(database.dsn) as processes:
        processes.start()
        for step in range(8):
            # the ids run ahead, so that the next node to look must make a partition
            await conn.execute("select setval('howdah.job_id', $1)", (step + 1) * 2_000_000)
            node = processes.start()
            await asyncio.sleep(0.25 + step * 0.04)
            os.kill(node.pid, signal.SIGSTOP)
            await app.enqueue_many(effect.job(made + n) for n in range(20))
            made += 20
            await eventually(lambda made=made: _all_marked(conn, made), 60)
    await app.close()


async def _all_marked(conn, made):
    return await conn.fetchval("select count(distinct n) from mark") == made
