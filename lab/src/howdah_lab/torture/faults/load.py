"""Hostile load: poison, thousands of jobs due at once, transactions left open, clocks that are wrong."""

from __future__ import annotations

import asyncio

import asyncpg

from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.faults.processes import stop
from howdah_lab.torture.site import TortureRun
from howdah_lab.torture.strays import strays

DUE = 10_000
HOURS = 2 * 3600


async def poison(site: TortureRun) -> None:
    """Jobs break in every way; meanwhile a node is stopped, and has to exit."""
    site.hurt("poison of every kind", *site.crew.of("worker"), shows="hands", within=site.beats.lease + 5)
    await site.load.poison()
    await stop(site)


async def due(site: TortureRun) -> None:
    """Thousands of jobs come due in the same moment."""
    site.hurt(f"{DUE:,} jobs due at once", *site.crew.of("worker"), shows="hands", within=site.beats.lease + 5)
    await site.load.storm(DUE)
    await site.rest(5, 8)


async def idle(site: TortureRun) -> None:
    """A client opens a transaction, writes, and leaves it idle."""
    conn = await asyncpg.connect(site.place.dsn, timeout=10)
    wound = site.hurt("a transaction left open", *site.crew.of("worker"), shows="hands", within=site.beats.lease + 5)
    try:
        async with conn.transaction():
            await conn.execute("create temporary table lunch (n int) on commit drop; insert into lunch values (1)")
            await site.rest(10, 20)
    finally:
        conn.terminate()
    site.heal(wound)


async def clock(site: TortureRun) -> None:
    """A worker is killed, and the clock of its successor is hours slow or fast."""
    hand = site.anyone("worker")
    if hand is None:
        return
    ahead = site.chance.choice([-HOURS, HOURS])
    site.hurt(f"a clock {ahead:+,} s off", hand, shows="jobs", within=site.beats.lease + 5)
    site.crew.kill(hand)
    other = site.crew.worker(site.dsn, HOWDAH_TORTURE_CLOCK=str(ahead))
    while not site.crew.is_at_work(other) and other.alive and not site.over.is_set():
        await asyncio.sleep(0.05)


FAULTS = [
    Fault(
        name="poison",
        about="jobs break in every way: hostile outcomes, dying processes",
        hurt=poison,
        controls=("process", "cleaning"),
        pause=(2, 5),
        judge=strays,
    ),
    Fault(name="due", about=f"{DUE:,} jobs come due at once", hurt=due, controls=("promote",), pause=(2, 4)),
    Fault(name="idle", about="transactions stay open", hurt=idle, controls=("frontier",)),
    Fault(name="clock", about="workers' clocks are hours off", hurt=clock, controls=("reset",)),
]
