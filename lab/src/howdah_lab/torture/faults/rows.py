"""A table that rejects updates of some of its rows, locks on others, and a crash after the outcome of a row."""

from __future__ import annotations

import asyncio

import asyncpg

from howdah_lab.torture.ack_moments import ROW_COMMITTED, ROWS_RECORDED
from howdah_lab.torture.checker import Violation, finding
from howdah_lab.torture.context import CheckInput, RunContext
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.faults.processes import stop
from howdah_lab.torture.faults.server import down
from howdah_lab.torture.rows import REFUSALS, STALLED_AFTER, STATES

LOCKED = 10
"""Rows that are locked at once."""
FEED_INTERVAL = 0.2
"""Seconds between two inserts of rows that no update refuses."""


async def refused(context: RunContext) -> None:
    """Insert rows that are refused, and lock others for longer than a node may be silent; then stop a node."""
    processes = context.processes.of("worker")
    injection = context.record_injection(
        "rows that are refused and rows that are locked",
        *processes,
        shows="processes",
        within=context.intervals.lease + 5,
    )
    await context.load.insert_refusing()
    await context.rest(0.2, 1.0)
    conn = await asyncpg.connect(context.server.dsn, timeout=10)
    try:
        async with conn.transaction():
            await conn.fetch(context.load.statements["lock_refusing"], LOCKED)
            await context.rest(1.2 * STALLED_AFTER, 1.6 * STALLED_AFTER)
    finally:
        conn.terminate()
    context.record_undone(injection)
    await stop(context)


async def crash_after_ack(context: RunContext) -> None:
    """Kill the postmaster at the moment the server has recorded the outcome of a row, in either way."""
    moment = context.chance.choice((ROWS_RECORDED, ROW_COMMITTED))

    async def end() -> None:
        crashed = asyncio.Event()
        feed = asyncio.create_task(_feed(context, crashed))
        try:
            await moment.comes(context, crash=True)
            await context.server.crash()
        finally:
            crashed.set()
            await feed  # not cancelled: asyncpg leaves an error behind when its connect is

    await down(context, f"kill -9 the postmaster right after {moment.about}", end, longest=1.0)


async def _feed(context: RunContext, crashed: asyncio.Event) -> None:
    """Insert rows whose handlers have no transaction of their own."""
    while not crashed.is_set():
        await context.load.plain_rows()
        await asyncio.sleep(FEED_INTERVAL)


async def verify(results: CheckInput) -> list[Violation]:
    """Find rows that did not end as they should, and rows that were taken from nodes that lived."""
    rows = await results.conn.fetch(results.sql["refusing"])
    by_mark = {row["mark"]: row for row in rows}
    acked = {mark for front, mark in results.history.acked if front == "refusing"}
    unlike = [
        f"{row['mark']} ({row['refusal'] or 'no refusal'}) is {row['state']}, not {STATES[row['refusal']]}"
        for row in rows
        if row["mark"] in acked and row["state"] != STATES[row["refusal"]]
    ]
    silent = [row["mark"] for row in rows if row["state"] == "failed" and not row["message"]]
    # no process is killed or frozen, so nothing but a heartbeat that is refused makes a row silent
    taken = [row["mark"] for row in rows if row["resets"] and row["refusal"] not in ("beat", "never")]
    found = [
        finding("I1", "rows that were inserted into a table that refuses updates and are gone", acked - by_mark.keys()),
        finding("I17", "rows of a table that refuses updates that did not end as they should", unlike),
        finding("I17", "rows that failed without a message", silent),
        finding("I15", "rows that were taken from a node that lived", taken, doubled=True),
    ]
    return [each for each in found if each is not None]


FAULTS = [
    Fault(
        name="refused",
        about="a table refuses updates of some of its rows, and others are locked",
        inject=refused,
        controls=("cleaning",),
        pause=(0.5, 2.0),
        environment={REFUSALS: "1"},
        verify=verify,
    ),
    Fault(
        name="crash-rows-ack",
        about="the postmaster is killed right after the outcome of a table row was recorded",
        inject=crash_after_ack,
        controls=("transaction", "flush"),
        pause=(2, 6),
        server="unflushed",
        harms_server=True,
        environment={REFUSALS: "1"},
        verify=verify,
    ),
]
