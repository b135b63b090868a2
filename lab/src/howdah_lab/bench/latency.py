"""Latency from enqueue to start on an idle queue. The node is another process on the same machine."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import quantiles

from howdah_lab.bench.app import probe
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.nodes import Nodes
from howdah_lab.bench.plan import Plan

WARM_UP = 10
PAUSE = (0.02, 0.06)
"""Seconds between two jobs: the node is idle again, and not in step with the benchmark."""


async def latency(plan: Plan) -> list[Figure]:
    """From the begin of the enqueue call to the start of the handler, one job at a time."""
    calls: list[float] = []
    async with Nodes(plan.schema.database, plan.processes) as nodes:
        await _enqueue(WARM_UP, [])
        await nodes.finish(WARM_UP)
        await nodes.reset()
        await _enqueue(plan.jobs, calls)
        readings = await nodes.finish(plan.jobs)
        await plan.schema.check(done=WARM_UP + plan.jobs)
    delays = [delay for reading in readings for delay in reading.delays]
    if len(delays) != plan.jobs:
        raise CheckFailed(f"{len(delays):,} handlers started for {plan.jobs:,} jobs")
    plan.tick()
    figures = [Figure(f"enqueue to start, p{rank}", "ms", [percentile(delays, rank)]) for rank in (50, 95, 99)]
    return [
        *figures,
        *(Figure(f"of it the enqueue call, p{rank}", "ms", [percentile(calls, rank)]) for rank in (50, 99)),
    ]


async def _enqueue(jobs: int, calls: list[float]) -> None:
    for _ in range(jobs):
        await asyncio.sleep(random.uniform(*PAUSE))  # noqa: S311
        began = time.monotonic()
        await probe.enqueue(began)
        calls.append(time.monotonic() - began)


def percentile(seconds: list[float], rank: int) -> float:
    """In milliseconds."""
    if len(seconds) == 1:
        return seconds[0] * 1e3
    return quantiles(seconds, n=100, method="inclusive")[rank - 1] * 1e3
