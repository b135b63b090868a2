"""Hostile load: poison, thousands of jobs due at once, transactions left open, clocks that are wrong."""

from __future__ import annotations

import asyncio

import asyncpg

from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.faults.processes import stop
from howdah_lab.torture.leftover_processes import leftover_processes

DUE = 10_000
HOURS = 2 * 3600


async def poison(context: RunContext) -> None:
    """Jobs break in every way; meanwhile a node is stopped, and has to exit."""
    context.record_injection(
        "poison of every kind", *context.processes.of("worker"), shows="processes", within=context.intervals.lease + 5
    )
    await context.load.poison()
    await stop(context)


async def due(context: RunContext) -> None:
    """Thousands of jobs come due in the same moment."""
    context.record_injection(
        f"{DUE:,} jobs due at once",
        *context.processes.of("worker"),
        shows="processes",
        within=context.intervals.lease + 5,
    )
    await context.load.storm(DUE)
    await context.rest(5, 8)


async def idle(context: RunContext) -> None:
    """A client opens a transaction, writes, and leaves it idle."""
    conn = await asyncpg.connect(context.server.dsn, timeout=10)
    injection = context.record_injection(
        "a transaction left open",
        *context.processes.of("worker"),
        shows="processes",
        within=context.intervals.lease + 5,
    )
    try:
        async with conn.transaction():
            await conn.execute("create temporary table lunch (n int) on commit drop; insert into lunch values (1)")
            await context.rest(10, 20)
    finally:
        conn.terminate()
    context.record_undone(injection)


async def clock(context: RunContext) -> None:
    """A worker is killed, and the clock of its successor is hours slow or fast."""
    process = context.pick("worker")
    if process is None:
        return
    ahead = context.chance.choice([-HOURS, HOURS])
    context.record_injection(f"a clock {ahead:+,} s off", process, shows="jobs", within=context.intervals.lease + 5)
    context.processes.kill(process)
    other = context.processes.worker(context.dsn, HOWDAH_TORTURE_CLOCK=str(ahead))
    while not context.processes.has_started(other) and other.alive and not context.over.is_set():
        await asyncio.sleep(0.05)


FAULTS = [
    Fault(
        name="poison",
        about="jobs break in every way: hostile outcomes, dying processes",
        inject=poison,
        controls=("process", "cleaning"),
        pause=(2, 5),
        verify=leftover_processes,
    ),
    Fault(name="due", about=f"{DUE:,} jobs come due at once", inject=due, controls=("promote",), pause=(2, 4)),
    Fault(name="idle", about="transactions stay open", inject=idle, controls=("frontier",)),
    Fault(name="clock", about="workers' clocks are hours off", inject=clock, controls=("reset",)),
]
