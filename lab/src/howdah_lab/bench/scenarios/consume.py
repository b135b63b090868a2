"""Consume throughput: a running node is reset to unread events, and the last checkpoint stops the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from howdah.errors import HowdahError
from howdah_lab.bench import events
from howdah_lab.bench.app import app
from howdah_lab.bench.append_variants import ratios
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.consumer_node import ConsumerNode
from howdah_lab.bench.consumers import CONSUMER
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.scenario import Plan

CATCH_UP_TIMEOUT = 120.0
"""Seconds for a consumer to read the whole log."""
CHUNK = 50_000
"""Events appended at once."""
BY_HAND = 1000
"""Events in one batch of the loop written by hand."""


@dataclass(frozen=True, slots=True)
class ConsumerKind:
    """One consumer to measure."""

    app: str
    name: str
    part: float = 1.0
    """Fraction of the events; slower consumers get fewer."""
    upserts: bool = False


KINDS = (
    ConsumerKind("nothing_100", "one at a time, batch 100"),
    ConsumerKind("nothing_1000", "one at a time, batch 1000"),
    ConsumerKind("nothing_at_once_100", "whole batches, batch 100"),
    ConsumerKind("nothing_at_once_1000", "whole batches, batch 1000"),
    ConsumerKind("upsert_100", "upsert each, batch 100", part=0.05, upserts=True),
    ConsumerKind("upsert_1000", "upsert each, batch 1000", part=0.05, upserts=True),
    ConsumerKind("upsert_at_once_1000", "upsert whole batches, batch 1000", part=0.25, upserts=True),
)
BESIDE = "nothing_1000"
"""The one that is compared with a loop written by hand."""


class Consumed(NamedTuple):
    """One round."""

    rate: float
    cpu: float


async def consume(plan: Plan) -> list[Figure]:
    """Every kind of consumer on the same events, one after the other, and a loop written by hand."""
    await events.make(plan)
    last = await fill(plan.jobs)
    await events.check(plan, events=plan.jobs)
    figures, upserted = [], 0
    for kind in KINDS:
        count = max(1, round(plan.jobs * kind.part))
        by_hand: list[float] = []
        rounds = await measure(plan, kind.app, last, count, by_hand if kind.app == BESIDE else None)
        rates = [each.rate for each in rounds]
        figures.append(Figure(kind.name, "events/s", rates))
        figures.append(Figure(f"{kind.name}, CPU of the worker", "µs/event", [each.cpu for each in rounds]))
        if by_hand:
            figures.append(Figure(f"read and checkpoint by hand, batch {BY_HAND}", "events/s", by_hand))
            figures.append(Figure(f"{kind.name} / by hand", "ratio", ratios(rates, by_hand)))
        if kind.upserts:
            upserted += count * (plan.rounds + 1)
            await _check_model(plan, upserted)
    return figures


async def fill(count: int) -> int:
    """Append so many events; returns the position of the last."""
    last, chunk = 0, []
    for number, (stream, batch) in enumerate(events.streams(count), start=1):
        chunk.append((stream, batch))
        if number % (CHUNK // events.PER_STREAM) == 0:
            last, chunk = await app.log.append_many(chunk), []
    return await app.log.append_many(chunk) if chunk else last


async def measure(plan: Plan, name: str, last: int, count: int, by_hand: list[float] | None = None) -> list[Consumed]:
    """Have one consumer handle the last events of the log again and again, after a round that does not count.

    ``by_hand`` is given the rates of a loop written by hand, in turn with it.
    """
    rounds = []
    async with ConsumerNode(plan.schema.database, name) as node:
        await app.log.wait_for(CONSUMER, last, timeout=CATCH_UP_TIMEOUT)
        for turn in range(plan.rounds + 1):
            consumed = await _round(node, last, count)
            if turn:
                rounds.append(consumed)
                if by_hand is not None:
                    by_hand.append(await _by_hand(plan))
                plan.tick()
    return rounds


async def _round(node: ConsumerNode, last: int, count: int) -> Consumed:
    before = await _handled(last)
    await node.reset()
    await app.log.admin.reset(CONSUMER, last - count)
    reading = await node.finish(count)
    if reading.other:
        raise HowdahError(f"{reading.other:,} batches failed")
    if (handled := await _handled(last) - before) != count:
        raise CheckFailed(f"the checkpoint counts {handled:,} events instead of {count:,}")
    assert reading.claimed is not None
    assert reading.acked is not None
    return Consumed(count / (reading.acked - reading.claimed), reading.cpu / count * 1e6)


async def _handled(last: int) -> int:
    (row,) = await app.log.admin.consumers(CONSUMER)
    if row.position != last:
        raise CheckFailed(f"the checkpoint is at {row.position:,} instead of {last:,}")
    return row.handled


async def _check_model(plan: Plan, times: int) -> None:
    row = await plan.schema.conn.fetchrow(events.statements(plan)["check_model"])
    if row["times"] != times:
        raise CheckFailed(f"the read model counts {row['times']:,} events instead of {times:,}")


async def _by_hand(plan: Plan) -> float:
    """Minimal loop that reads all events and stores its position durably: no frontier, no lease, no handler."""
    statements, conn, at, count = events.statements(plan), plan.schema.conn, 0, 0
    await conn.execute(statements["forget_position"])
    began = time.perf_counter()
    while True:
        async with conn.transaction():
            rows: Sequence[tuple[int, ...]] = await conn.fetch(statements["read_by_hand"], at, BY_HAND)
            if not rows:
                break
            at, count = rows[-1][0], count + len(rows)
            await conn.execute(statements["remember_position"], at)
    rate = count / (time.perf_counter() - began)
    if count != plan.jobs:
        raise CheckFailed(f"{count:,} events were read by hand instead of {plan.jobs:,}")
    return rate
