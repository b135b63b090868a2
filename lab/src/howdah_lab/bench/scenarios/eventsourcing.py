"""Comparison with the library `eventsourcing`, in turn on the same server, if it is installed."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

import msgspec

from howdah.errors import HowdahError
from howdah_lab.bench import events
from howdah_lab.bench.app import app, arguments
from howdah_lab.bench.append_variants import ratios
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.scenario import LeftOut, Plan
from howdah_lab.bench.scenarios.append import MANY, SINGLE, connections, guarded
from howdah_lab.bench.scenarios.consume import fill, measure

INSTALL = 'pip install "eventsourcing[postgres]" "psycopg[binary]"'
READ = 0.4
"""Part of the events the rival reads without tracking; with tracking it gets as few as appends do."""
ROUND_TIMEOUT = 600.0
"""Seconds for one round of the library."""


async def rival(plan: Plan) -> list[Figure]:
    """Single appends, and consumers that do nothing. Ratios are ours divided by theirs."""
    if find_spec("eventsourcing") is None or find_spec("psycopg_pool") is None:
        raise LeftOut(f"it needs the library eventsourcing; {INSTALL}")
    await events.make(plan)
    single = max(MANY, round(plan.jobs * SINGLE))
    once = replace(plan, rounds=1, tick=lambda: None)
    one, many, theirs = [], [], []
    # the largest batches first: the first consumer has to catch up with the whole log
    consumed: dict[int, list[float]] = {1000: [], 100: [], 1: []}
    await fill(plan.jobs)
    for turn in range(plan.rounds):
        async with connections(MANY) as conns:
            await guarded(conns, 1)
            one.append(await guarded(conns[:1], single))
            many.append(await guarded(conns, single // MANY))
        await events.check(plan, events=plan.jobs + (turn + 1) * (MANY + single + single // MANY * MANY))
        last = (await app.log.frontier()).safe
        for batch, rates in consumed.items():
            (only,) = await measure(once, f"nothing_{batch}", last, plan.jobs if batch > 1 else single)
            rates.append(only.rate)
        theirs.append(await _theirs(plan, turn, single))
        plan.tick()
    return [
        *_beside("append, 1 writer x 1", one, theirs, ("application", "recorder x 1", "recorder x 1, functions")),
        *_beside(f"append, {MANY} writers x 1", many, theirs, (f"recorder x {MANY}", f"recorder x {MANY}, functions")),
        *_beside("consume, batch 1", consumed[1], theirs, ("projection",)),
        *_beside("consume, batch 100", consumed[100], theirs, ("projection",)),
        *_beside("consume, batch 1000", consumed[1000], theirs, ("projection", "subscription, nothing tracked")),
    ]


def _beside(
    name: str, ours: Sequence[float], theirs: Sequence[Mapping[str, float]], kinds: Sequence[str]
) -> Iterator[Figure]:
    yield Figure(name, "events/s", ours)
    for kind in kinds:
        rates = [each[kind] for each in theirs]
        yield Figure(f"{name}: its {kind}", "events/s", rates)
        yield Figure(f"{name} / its {kind}", "ratio", ratios(ours, rates))


async def _theirs(plan: Plan, turn: int, single: int) -> dict[str, float]:
    database = plan.schema.database
    task = {
        "dsn": database.dsn,
        "schema": database.schema,
        "round": turn,
        "single": single,
        "read": max(1, round(plan.jobs * READ)),
        "tracked": single,
        "writers": MANY,
        "payload": arguments(turn),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "howdah_lab.bench.eventsourcing_rounds"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith(("POSTGRES_", "PERSISTENCE_"))},
        cwd="/",
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(msgspec.json.encode(task)), ROUND_TIMEOUT)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise HowdahError(
            f"eventsourcing exited with code {process.returncode}; its output: {err.decode(errors='replace')[-1000:]}"
        )
    return msgspec.json.decode(out, type=dict[str, float])
