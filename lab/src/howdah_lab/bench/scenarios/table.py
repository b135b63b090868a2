"""Throughput on rows of a user's own table, compared with a simple hand-written loop on the same table."""

from __future__ import annotations

import time
from typing import Any

from howdah import telemetry
from howdah.app import Howdah
from howdah.postgres import sql
from howdah.worker.options import WorkerOptions
from howdah_lab.bench.bench_schema import CheckFailed, held_snapshot
from howdah_lab.bench.figure import Figure
from howdah_lab.bench.scenario import Plan

NAIVE_SHARE = 0.1
"""Of the rows, those the slow way is measured with."""


async def table(plan: Plan) -> list[Figure]:
    """Without and with a snapshot held open; the node runs in this process."""
    naive, free, held = [], [], []
    statements = sql.load("howdah_lab.bench", schema=plan.schema.database.schema)
    await plan.schema.conn.execute(statements["make_rows"])
    for _ in range(plan.rounds):
        naive.append(await _by_hand(plan, statements))
        free.append(await _round(plan, statements))
        plan.tick()
    await plan.schema.fresh()
    await plan.schema.conn.execute(statements["make_rows"])
    async with held_snapshot(plan.schema.database):
        for _ in range(plan.rounds):
            held.append(await _round(plan, statements))
            plan.tick()
    ratios = [ours / theirs for ours, theirs in zip(free, naive, strict=True)]
    return [
        Figure("drained, no snapshot held", "rows/s", free),
        Figure("one row a claim, one update a finish", "rows/s", naive),
        Figure("drained / by hand", "ratio", ratios),
        Figure("drained, snapshot held", "rows/s", held),
        Figure("last / first round, snapshot held", "ratio", [held[-1] / held[0]]),
    ]


async def _round(plan: Plan, statements: dict[str, str]) -> float:
    app = Howdah(plan.schema.database.dsn, schema=plan.schema.database.schema)
    rows = app.table(f'"{app.database.schema}".bench_row', order_by=["id"])

    @rows.handler
    async def nothing(_row: Any) -> None: ...

    await plan.schema.conn.execute(statements["insert_rows"], plan.jobs)
    clock = Clock()
    stop = telemetry.subscribe(clock.hear)
    try:
        await app.node(WorkerOptions(drain=True), upkeep=False).run()
    finally:
        stop()
    await _check(plan, statements)
    return plan.jobs / (clock.ended - clock.began)


async def _by_hand(plan: Plan, statements: dict[str, str]) -> float:
    count = max(1, int(plan.jobs * NAIVE_SHARE))
    conn = plan.schema.conn
    await conn.execute(statements["insert_rows"], count)
    began = time.perf_counter()
    while (id := await conn.fetchval(statements["naive_claim"])) is not None:
        await conn.execute(statements["naive_finish"], id)
    rate = count / (time.perf_counter() - began)
    await _check(plan, statements)
    return rate


async def _check(plan: Plan, statements: dict[str, str]) -> None:
    row = await plan.schema.conn.fetchrow(statements["count_rows"])
    if row["other"]:
        raise CheckFailed(f"{row['other']:,} rows are not completed")


class Clock:
    """From the start of the first claim that found work to the last recorded outcome."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        """A telemetry listener."""
        if name == "job.claim" and not self.began:
            self.began = time.perf_counter() - facts["seconds"]
        elif name == "job.ack":
            self.ended = time.perf_counter()
