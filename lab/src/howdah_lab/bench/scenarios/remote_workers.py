"""Workers over HTTP: a few with large batches; then very many idle ones at one control plane while some work."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from howdah.control_plane.options import OTHER_CONNECTIONS, ServeOptions
from howdah.errors import HowdahError
from howdah.postgres import sql
from howdah_lab.bench import app as tasks
from howdah_lab.bench.app import app, arguments
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.control_plane_process import ControlPlane
from howdah_lab.bench.figure import Figure, percentile
from howdah_lab.bench.scenario import Plan
from howdah_lab.bench.scenarios.event_latency import PAUSE
from howdah_lab.bench.simulated_workers import SimulatedWorkers

MOST_NODES = 1000
AT_WORK = 20
"""One of so many works while the others wait."""
BATCH = 100
BATCHERS = 8
SMALL_BATCH = 10
SHARE = 0.2
"""Of the jobs of a round, those of the workers that are busy while others wait."""
WARM_UP = 200
SETTLE = 0.3
"""Seconds for the workers to poll the paused queue and become idle."""
MOST_PROBES = 1_000_000
QUEUE = "bulk"
"""Of the jobs that are worked off; probes are in another."""
POLL = 0.005
"""Seconds between two checks of a condition."""
WAIT_TIMEOUT = 60.0
"""Seconds."""


class Round(NamedTuple):
    """Jobs that were done, and what it took."""

    rate: float
    cpu: float


async def fleet(plan: Plan) -> list[Figure]:
    """Batches of 100 first, then many idle workers."""
    figures = await _batches(plan)
    await plan.schema.fresh()
    return figures + await _many_workers(plan)


async def _batches(plan: Plan) -> list[Figure]:
    """As much as goes through one control plane."""
    rounds, total = [], WARM_UP
    async with ControlPlane(plan.schema.database) as control, _workers(control, BATCHERS, "nothing", BATCH) as workers:
        await _fill(WARM_UP)
        await _drain(control, workers, WARM_UP)
        for _ in range(plan.rounds):
            await _fill(plan.jobs)
            rounds.append(await _drain(control, workers, plan.jobs))
            total += plan.jobs
            await plan.schema.check(done=total)
            plan.tick()
    return _figures(f"batches of {BATCH}", rounds)


async def _many_workers(plan: Plan) -> list[Figure]:
    """Very many wait, first for what comes now and then, then while some of them have work without end."""
    nodes = max(20, min(MOST_NODES, plan.jobs // 50))
    working = max(1, nodes // AT_WORK)
    name = f"{nodes:,} nodes"
    await tasks.probe.enqueue(
        time.monotonic()
    )  # opens the connections of the benchmark before those of the control plane are counted
    since = await plan.schema.conn.fetchval("select clock_timestamp()")
    async with (
        ControlPlane(plan.schema.database) as control,
        _workers(control, nodes - working, "probe", 1) as waiting,
        _workers(control, working, "nothing", SMALL_BATCH) as workers,
    ):
        await _until(lambda: waiting.settled >= 1, waiting)
        idle, busy, calls, rounds, jobs = [], [], list[float](), [], max(1, round(plan.jobs * SHARE))
        for _ in range(plan.rounds):
            idle += await _probes(waiting, max(1, plan.jobs // 500), calls)
            await _fill(jobs)
            probing = asyncio.create_task(_probes(waiting, MOST_PROBES, []))
            rounds.append(await _drain(control, workers, jobs))
            probing.cancel()
            busy += await probing
            await plan.schema.check(done=waiting.settled + workers.settled)
            plan.tick()
        memory = control.memory
        connections = await plan.schema.conn.fetchval(
            sql.load("howdah_lab.bench", schema=plan.schema.database.schema)["connections"], since
        )
    if connections > ServeOptions().pool + OTHER_CONNECTIONS:
        raise CheckFailed(f"the control plane has {connections} connections to PostgreSQL open")
    return [
        *(Figure(f"{name} idle, enqueue to claim, p{rank}", "ms", [percentile(idle, rank)]) for rank in (50, 99)),
        Figure("of it the enqueue call, p50", "ms", [percentile(calls, 50)]),
        *(
            Figure(f"{name}, {working} at work, enqueue to claim, p{rank}", "ms", [percentile(busy or idle, rank)])
            for rank in (50, 99)
        ),
        *_figures(f"{name}, {working} at work", rounds),
        Figure(f"{name}, memory of the control plane", "MB", [memory]),
        Figure(f"{name}, connections to PostgreSQL", "connections", [float(connections)]),
    ]


def _workers(control: ControlPlane, nodes: int, kind: str, batch: int) -> SimulatedWorkers:
    return SimulatedWorkers(control.port, control.token, nodes=nodes, kind=kind, batch=batch)


async def _fill(jobs: int) -> None:
    """Enqueue jobs on a paused queue."""
    await app.admin.pause(QUEUE, by="howdah bench")
    task = tasks.nothing.using(queue=QUEUE)
    await app.enqueue_many(task.job(*arguments(number)) for number in range(jobs))
    await asyncio.sleep(SETTLE)


async def _drain(control: ControlPlane, workers: SimulatedWorkers, jobs: int) -> Round:
    """Resume the queue; the last committed outcome stops the clock."""
    wanted, cpu, began = workers.settled + jobs, control.cpu, time.monotonic()
    await app.admin.resume(QUEUE)
    await _until(lambda: workers.settled >= wanted, workers)
    return Round(jobs / (workers.last - began), (control.cpu - cpu) / jobs * 1e6)


async def _probes(waiting: SimulatedWorkers, jobs: int, calls: list[float]) -> list[float]:
    """One job at a time; returns how long each took to reach a worker. When cancelled, those so far."""
    waiting.delays.clear()
    sent = 0
    try:
        for _ in range(jobs):
            await asyncio.sleep(random.uniform(*PAUSE))  # noqa: S311
            began = time.monotonic()
            sent += 1
            await asyncio.shield(tasks.probe.enqueue(began))
            calls.append(time.monotonic() - began)
    except asyncio.CancelledError:
        pass
    await _until(lambda: len(waiting.delays) >= sent and waiting.settled == waiting.taken, waiting)
    return list(waiting.delays)


async def _until(check: Callable[[], bool], workers: SimulatedWorkers) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while not check():
        workers.check()
        if time.monotonic() > deadline:
            raise HowdahError(f"only {workers.taken:,} jobs reached the workers in {WAIT_TIMEOUT:g} s")
        await asyncio.sleep(POLL)


def _figures(name: str, rounds: list[Round]) -> list[Figure]:
    return [
        Figure(name, "jobs/s", [each.rate for each in rounds]),
        Figure(f"{name}, CPU of the control plane", "µs/job", [each.cpu for each in rounds]),
    ]
