"""Batch tasks on workers without a database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control_plane.conftest import serving
from howdah import ConfigError, Howdah, Snooze, Transaction
from kit.node import ended, eventually, state
from kit.remote_node import remote

pytestmark = pytest.mark.anyio


async def test_a_remote_worker_runs_batches_and_charges_exactly_the_jobs_that_fail(app: Howdah, conn: Any) -> None:
    far, calls = Howdah(), []

    @far.task(batch=100, max_attempts=1)
    async def work(n: list[int]) -> list[object]:
        calls.append(len(n))
        if 7 in n:
            raise RuntimeError("bad")
        return [Snooze(100) if each == 3 else each for each in n]

    async with serving(app) as plane:
        await app.enqueue_many(work.using(max_attempts=1).job(n) for n in range(20))
        ids = [row[0] for row in await conn.fetch("select id from howdah.jobs order by id")]
        async with remote(plane, far):
            rows = [await ended(conn, id) for n, id in enumerate(ids) if n != 3]
            await eventually(lambda: is_queued(conn, ids[3]))

    assert [row["state"] for row in rows].count("done") == 18
    assert [row["state"] for row in rows][6] == "failed"
    assert sum(calls) > 20
    assert max(calls) > 1
    assert await conn.fetchval("select array_agg(id) from howdah.attempt") == [ids[7]]


async def is_queued(conn: Any, id: int) -> bool:
    return await state(conn, id) == "queued"


async def test_a_job_of_a_remote_batch_is_cancelled_and_the_others_run_again(app: Howdah, conn: Any) -> None:
    far, calls, inside = Howdah(), [], asyncio.Event()

    @far.task(batch=100)
    async def work(n: list[int]) -> None:
        calls.append(n)
        if 2 in n:
            inside.set()
            await asyncio.sleep(60)

    async with serving(app) as plane:
        made = await app.enqueue_many(work.job(n) for n in range(4))
        async with remote(plane, far):
            await asyncio.wait_for(inside.wait(), 30)
            await app.admin.cancel([made[2].id])
            rows = [await ended(conn, each.id) for each in made]

    assert [row["state"] for row in rows] == ["done", "done", "cancelled", "done"]
    assert calls[-1] == [n for n in calls[0] if n != 2]


async def test_a_transactional_batch_is_not_run_without_the_database(app: Howdah) -> None:
    far = Howdah()

    @far.task(batch=100, transactional=True)
    async def work(tx: Transaction, n: list[int]) -> None: ...

    async with serving(app) as plane:
        with pytest.raises(ConfigError, match="no task or table that can be run without a database"):
            async with remote(plane, far):
                pass
