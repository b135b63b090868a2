"""Drain throughput: running nodes work off queued jobs, and the last committed outcome stops the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from howdah.errors import HowdahError
from howdah.task import Task
from howdah_lab.bench import app as tasks
from howdah_lab.bench.app import QUEUE, app, make
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.nodes import Nodes
from howdah_lab.bench.plan import Plan

WARM_UP = 200
"""Jobs before the first round: connections are opened and statements prepared, as in a node that runs for a while."""
SETTLE = 0.3
"""Seconds for the nodes to poll the paused queue and become idle."""

Enqueue = Callable[[Task[..., Any], int], Awaitable[object]]


class DrainResult(NamedTuple):
    """One round."""

    rate: float
    cpu: float


async def drain(plan: Plan) -> list[Figure]:
    """Async handlers that do nothing."""
    return _figures(await _rounds(plan, tasks.nothing))


async def sync(plan: Plan) -> list[Figure]:
    """Plain functions, in threads."""
    return _figures(await _rounds(plan, tasks.nothing_in_a_thread))


async def transactional(plan: Plan) -> list[Figure]:
    """One insert per job, in one commit with its completion."""
    return _figures(await _rounds(plan, tasks.insert_one, effects=True))


async def singles(plan: Plan) -> list[Figure]:
    """Jobs that came one by one, so that no two are claimed as one run."""
    return _figures(await _rounds(plan, tasks.nothing, enqueue=_one_by_one))


async def processes(plan: Plan) -> list[Figure]:
    """Several nodes on one queue."""
    return _figures(await _rounds(plan, tasks.nothing, nodes=max(2, plan.processes)))


async def held(plan: Plan) -> list[Figure]:
    """The same rounds without and with a snapshot held open from before the first to after the last."""
    free = await _rounds(plan, tasks.nothing)
    await plan.schema.fresh()
    async with plan.schema.held_snapshot():
        held = await _rounds(plan, tasks.nothing)
    return [
        Figure("drained, no snapshot held", "jobs/s", [each.rate for each in free]),
        Figure("drained, snapshot held", "jobs/s", [each.rate for each in held]),
        Figure("last / first round, no snapshot held", "ratio", [free[-1].rate / free[0].rate]),
        Figure("last / first round, snapshot held", "ratio", [held[-1].rate / held[0].rate]),
    ]


async def _in_bulk(task: Task[..., Any], count: int) -> None:
    await app.enqueue_many(make(task, number) for number in range(count))


async def _one_by_one(task: Task[..., Any], count: int) -> None:
    # one transaction: the layout of the queued jobs matters here, not the commits
    conn = await app.database.connect("bench enqueue")
    try:
        async with conn.transaction():
            for number in range(count):
                await app.enqueue(make(task, number), conn)
    finally:
        conn.terminate()


async def _rounds(
    plan: Plan,
    task: Task[..., Any],
    *,
    enqueue: Enqueue = _in_bulk,
    nodes: int | None = None,
    effects: bool = False,
) -> list[DrainResult]:
    total, rounds = WARM_UP, []
    async with Nodes(plan.schema.database, nodes or plan.processes) as running:
        await _in_bulk(task, WARM_UP)
        await running.finish(WARM_UP)
        for _ in range(plan.rounds):
            rounds.append(await _round(plan.jobs, task, enqueue, running))
            total += plan.jobs
            await plan.schema.check(done=total, effects=total if effects else 0)
            plan.tick()
    return rounds


async def _round(jobs: int, task: Task[..., Any], enqueue: Enqueue, nodes: Nodes) -> DrainResult:
    await app.admin.pause(QUEUE, by="howdah bench")
    await enqueue(task, jobs)
    await asyncio.sleep(SETTLE)
    await nodes.reset()
    await app.admin.resume(QUEUE)
    readings = await nodes.finish(jobs)
    if other := sum(reading.other for reading in readings):
        raise HowdahError(f"{other:,} of {jobs:,} jobs did not end as done")
    began = min(reading.claimed for reading in readings if reading.claimed is not None)
    ended = max(reading.acked for reading in readings if reading.acked is not None)
    cpu = sum(reading.cpu for reading in readings)
    return DrainResult(jobs / (ended - began), cpu / jobs * 1e6)


def _figures(rounds: Sequence[DrainResult]) -> list[Figure]:
    return [
        Figure("drained", "jobs/s", [each.rate for each in rounds]),
        Figure("CPU of the worker", "µs/job", [each.cpu for each in rounds]),
    ]
