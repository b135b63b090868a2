"""A standby that is promoted, with workers that are frozen meanwhile and wake up on another server."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from howdah_lab.torture.crew import Hand
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.moments import MOMENTS
from howdah_lab.torture.site import TortureRun

SOON = 15.0
"""Seconds after which work must continue when a primary takes writes; a new standby copies it meanwhile."""
RECOVERY = 60.0
AIMS = ("claim", "ack", "append", "rows")
"""Moments at which the primary is killed."""
LAG = 80
"""Tokens and positions that a standby lacks: PostgreSQL logs sequences 32 numbers ahead of time."""
PATIENCE = 60.0
"""Seconds for that, and for a process to begin to work."""
AWAKE = 2
"""Workers with a database that are not frozen, at least."""


async def promote_sync(site: TortureRun) -> None:
    """The standby has all that was acknowledged."""
    await _promote(site, _some(site))


async def promote_async(site: TortureRun) -> None:
    """The standby lacks what was acknowledged last: where consumers are, and then, that some workers exist."""
    async with _held_back(site):
        await site.place.cut_off()
        await _fall_behind(site)
        await _promote(site, _some(site))
    await site.place.cut_off()
    hands = await _renew(site)
    await _fall_behind(site)
    await _promote(site, hands)


def _some(site: TortureRun) -> list[Hand]:
    """Half of the workers with a database, and one without."""
    hands = site.crew.of("worker")
    return site.chance.sample(hands, len(hands) // 2) + site.crew.of("agent")[:1]


async def _promote(site: TortureRun, frozen: list[Hand]) -> None:
    """Freeze some, kill the primary, promote its standby, and wake them up later. There is a standby again then."""
    await MOMENTS["claim"].comes(site)
    for hand in frozen:
        site.hurt(f"freeze {hand.role} {hand.pid}", hand)
        site.crew.signal(hand, signal.SIGSTOP)
    moment = MOMENTS[site.chance.choice(AIMS)]
    did = f"kill -9 the primary right after {moment.about}, and promote its standby"
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=SOON)
    await moment.comes(site)
    await site.place.crash()
    await site.place.promote()
    if not site.place.synchronous:
        await _note_kept(site)
    site.line.to = site.place.address
    wound.healed = await site.place.writable(RECOVERY)
    site.say(f"{did}: over")
    async with asyncio.TaskGroup() as group:
        group.create_task(site.place.follow())
        if not site.place.synchronous:
            await _at_work(site, site.crew.worker(site.dsn))
        await asyncio.sleep(site.chance.uniform(0.2, 1.5) * site.beats.lease)
        for hand in frozen:
            site.crew.signal(hand, signal.SIGCONT)
        site.say("they wake up")


async def _renew(site: TortureRun) -> list[Hand]:
    """Start a worker of each kind in the place of another; a standby that is cut off does not know of them."""
    for hand in [*site.crew.of("worker")[AWAKE:], *site.crew.of("agent")]:
        site.hurt(f"kill -9 {hand.role} {hand.pid}", hand)
        site.crew.kill(hand)
    hands = [site.crew.worker(site.dsn), site.crew.agent(site.url)]
    for hand in hands:
        await _at_work(site, hand)
    return hands


async def _at_work(site: TortureRun, hand: Hand) -> None:
    """Wait until a process has begun to work."""
    until = time.monotonic() + PATIENCE
    while not site.crew.is_at_work(hand) and hand.alive and time.monotonic() < until:
        await asyncio.sleep(0.05)


async def _fall_behind(site: TortureRun) -> None:
    """Wait until the primary has given out numbers that the standby will give out again."""
    until = time.monotonic() + PATIENCE
    conn = await asyncpg.connect(site.place.direct, timeout=10, command_timeout=10)
    try:
        began = await conn.fetchrow(site.sql["numbers"])
        while min(now - then for now, then in zip(await conn.fetchrow(site.sql["numbers"]), began, strict=True)) < LAG:
            if time.monotonic() > until:
                break
            await asyncio.gather(*(site.load.append() for _ in range(4)))
    finally:
        conn.terminate()


@asynccontextmanager
async def _held_back(site: TortureRun) -> AsyncIterator[None]:
    """Lock the checkpoints of consumers: they stay as the standby has them, while the frontier of the log moves on."""
    conn = await asyncpg.connect(site.place.direct, timeout=10, command_timeout=10)
    try:
        await conn.execute("begin")
        await conn.execute(site.sql["hold_checkpoints"])
        yield
    finally:
        conn.terminate()


async def _note_kept(site: TortureRun) -> None:
    """Write down what the new primary has, before a client can reach it."""
    conn = await asyncpg.connect(site.place.direct, timeout=10, command_timeout=60)
    try:
        rows = await conn.fetch(site.sql["kept"])
    finally:
        conn.terminate()
    site.pen.write("kept", "", *(row["mark"] for row in rows))


FAULTS = [
    Fault(
        name="promote-sync",
        about="a synchronous standby is promoted, and workers sleep through it",
        hurt=promote_sync,
        controls=("flush", "transaction"),
        pause=(1, 4),
        place="replicated-sync",
        hurts_server=True,
    ),
    Fault(
        name="promote-async",
        about="a standby that was cut off is promoted, and workers sleep through it",
        hurt=promote_async,
        controls=("sequence", "run"),
        pause=(1, 4),
        place="replicated-async",
        hurts_server=True,
    ),
]
