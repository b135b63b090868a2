"""Enqueue throughput. No node runs meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from howdah.postgres import sql
from howdah_lab.bench.app import app, arguments, make, nothing
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.plan import Plan

CALLERS = 100
ONE_BY_ONE = 0.04
TOGETHER = 0.4
"""Fractions of the requested jobs; slower ways get fewer."""


async def enqueue(plan: Plan) -> list[Figure]:
    """Every way to enqueue, and a plain insert to compare the slowest with."""
    few, some, many = max(1, round(plan.jobs * ONE_BY_ONE)), max(1, round(plan.jobs * TOGETHER)), plan.jobs
    waiting = 0
    figures = []
    ways: list[tuple[str, int, Callable[[int], Awaitable[float]]]] = [
        ("one at a time", few, _one_at_a_time),
        (f"{CALLERS} callers at once", max(1, some // CALLERS) * CALLERS, _together),
        ("in bulk, jobs made before", many, _bulk_made_before),
        ("in bulk, making included", many, _bulk),
    ]
    await _one_at_a_time(1)  # opens the pool
    waiting += 1
    for name, jobs, way in ways:
        rates = []
        for _ in range(plan.rounds):
            rates.append(jobs / await way(jobs))
            waiting += jobs
            await plan.schema.check(done=0, waiting=waiting)
            plan.tick()
        figures.append(Figure(name, "jobs/s", rates))
    plain = []
    for _ in range(plan.rounds):
        plain.append(few / await _plain_inserts(few))
        plan.tick()
    figures.insert(1, Figure("plain insert, one at a time", "rows/s", plain))
    return figures


async def _one_at_a_time(jobs: int) -> float:
    began = time.perf_counter()
    for number in range(jobs):
        await nothing.enqueue(*arguments(number))
    return time.perf_counter() - began


async def _together(jobs: int) -> float:
    async def call(first: int, count: int) -> None:
        for number in range(first, first + count):
            await nothing.enqueue(*arguments(number))

    each = jobs // CALLERS
    began = time.perf_counter()
    async with asyncio.TaskGroup() as callers:
        for caller in range(CALLERS):
            callers.create_task(call(caller * each, each))
    return time.perf_counter() - began


async def _bulk_made_before(jobs: int) -> float:
    made = [make(nothing, number) for number in range(jobs)]
    began = time.perf_counter()
    await app.enqueue_many(made)
    return time.perf_counter() - began


async def _bulk(jobs: int) -> float:
    began = time.perf_counter()
    await app.enqueue_many(make(nothing, number) for number in range(jobs))
    return time.perf_counter() - began


async def _plain_inserts(rows: int) -> float:
    statement = sql.load("howdah_lab.bench", schema=app.database.schema)["insert_plain"]
    payload = make(nothing, 0).payload
    conn = await app.database.connect("bench plain")
    try:
        prepared = await conn.prepare(statement)
        began = time.perf_counter()
        for _ in range(rows):
            await prepared.fetch(payload)
        return time.perf_counter() - began
    finally:
        conn.terminate()
