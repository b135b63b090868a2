"""Append throughput, compared with appends without the gate and with a plain insert."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import msgspec

from howdah_lab.bench import events, pgbench
from howdah_lab.bench.app import app
from howdah_lab.bench.append_variants import SLICES, AppendVariants
from howdah_lab.bench.events import PER_STREAM, placed
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.scenario import Plan

SINGLE, SEVERAL = 0.04, 0.4
"""Fractions of the requested events; slower variants get fewer."""
MANY = 8
"""Writers."""
TOGETHER = 100
"""Events in one append."""
PARTS = 6
"""One and many writers, one event and many; in bulk; and without Python."""

_labels = count()


async def append(plan: Plan) -> list[Figure]:
    """Every number of writers and events in every variant."""
    await events.make(plan)
    single, several = max(MANY, round(plan.jobs * SINGLE)), max(MANY, round(plan.jobs * SEVERAL / TOGETHER))
    figures = []
    for writers in (1, MANY):
        for together, appends in ((1, single), (TOGETHER, several)):
            figures += await _by(plan, writers, together, appends // writers)
    return [*figures, *await _in_bulk(plan), *await pgbench.append(plan, MANY, single // MANY)]


async def _by(plan: Plan, writers: int, together: int, each: int) -> list[Figure]:
    before, variants, each = await events.counted(plan), AppendVariants(), max(1, each // SLICES)
    async with connections(writers) as conns:
        ours, plain = partial(guarded, conns, each, together), partial(_plain, plan, conns, each, together)
        await AppendVariants().round(plan, ours, plain)  # prepares the statements
        for _ in range(plan.rounds):
            await variants.round(plan, ours, plain)
            plan.tick()
    made = writers * together * each * SLICES * (plan.rounds + 1)
    await events.check(plan, events=before.events + 2 * made, plain=before.plain + made)
    return variants.figures(f"{writers} writer{'s' if writers > 1 else ''} x {together}")


async def guarded(conns: Sequence[Any], each: int, together: int = 1) -> float:
    """Append so often through every connection, to new streams and to some that exist; returns events a second."""
    label = next(_labels)

    async def write(conn: Any, writer: int) -> None:
        batch = [placed(number) for number in range(together)]
        for number in range(each):
            await app.log.append(f"Order-{label}-{writer}-{number // PER_STREAM}", batch, conn=conn)

    return await _rate(conns, each * together, write)


async def _plain(plan: Plan, conns: Sequence[Any], each: int, together: int) -> float:
    label = next(_labels)
    batch = [msgspec.json.encode(placed(number)) for number in range(together)]
    statement = events.statements(plan)["insert_event" if together == 1 else "insert_events"]

    async def write(conn: Any, writer: int) -> None:
        for number in range(each):
            stream, before = f"{label}-{writer}-{number // PER_STREAM}", number % PER_STREAM * together
            if together == 1:
                await conn.fetch(statement, stream, before + 1, batch[0])
            else:
                await conn.fetch(statement, stream, before, batch)

    return await _rate(conns, each * together, write)


async def _in_bulk(plan: Plan) -> list[Figure]:
    rates, before = [], await events.counted(plan)
    for turn in range(plan.rounds):
        made = [(f"{stream}-bulk-{turn}", batch) for stream, batch in events.streams(plan.jobs)]
        began = time.perf_counter()
        await app.log.append_many(made)
        rates.append(plan.jobs / (time.perf_counter() - began))
        await events.check(plan, events=before.events + (turn + 1) * plan.jobs, plain=before.plain)
        plan.tick()
    return [Figure("in bulk, events made before", "events/s", rates)]


@asynccontextmanager
async def connections(writers: int) -> AsyncIterator[list[Any]]:
    """A connection for every writer."""
    conns = [await app.database.connect("bench writer") for _ in range(writers)]
    try:
        yield conns
    finally:
        for conn in conns:
            conn.terminate()


async def _rate(conns: Sequence[Any], each: int, write: Callable[[Any, int], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(write(conn, writer) for writer, conn in enumerate(conns)))
    return len(conns) * each / (time.perf_counter() - began)
