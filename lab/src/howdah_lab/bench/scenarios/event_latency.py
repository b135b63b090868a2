"""Latency from append to handler on an idle log. The node is another process on the same machine."""

from __future__ import annotations

import asyncio
import random
import time

from howdah_lab.bench.app import app
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.consumer_node import ConsumerNode
from howdah_lab.bench.consumers import CONSUMER
from howdah_lab.bench.events import Probe
from howdah_lab.bench.figure import Figure, percentile
from howdah_lab.bench.scenario import Plan

WARM_UP = 10
PAUSE = (0.02, 0.06)
"""Seconds between two probes: the node is idle again, and not in step with the benchmark."""


async def arrival(plan: Plan) -> list[Figure]:
    """From the begin of the append call to the start of the handler, and to the commit; one event at a time."""
    calls: list[float] = []
    async with ConsumerNode(plan.schema.database, "probe_100") as node:
        await app.log.wait_for(CONSUMER, await _append(WARM_UP, []))
        await node.reset()
        await _append(plan.jobs, calls)
        reading = await node.finish(plan.jobs)
    for what, times in (("started", reading.delays), ("settled", reading.settled)):
        if len(times) != plan.jobs:
            raise CheckFailed(f"{len(times):,} of {plan.jobs:,} events were {what}")
    plan.tick()
    return [
        *(Figure(f"append to handler, p{rank}", "ms", [percentile(reading.delays, rank)]) for rank in (50, 95, 99)),
        *(Figure(f"append to checkpoint, p{rank}", "ms", [percentile(reading.settled, rank)]) for rank in (50, 99)),
        Figure("of it the append call, p50", "ms", [percentile(calls, 50)]),
    ]


async def _append(events: int, calls: list[float]) -> int:
    position = 0
    for number in range(events):
        await asyncio.sleep(random.uniform(*PAUSE))  # noqa: S311
        began = time.monotonic()
        position = (await app.log.append(f"Probe-{number}", Probe(began))).position
        calls.append(time.monotonic() - began)
    return position
