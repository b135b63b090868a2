"""Connections that are cut, go dead, become slow, or are ended by the server."""

from __future__ import annotations

import asyncio

import asyncpg

from howdah_lab.torture.faults.fault import Fault, Hurt
from howdah_lab.torture.site import TortureRun

SOON = 5.0
"""Seconds after which work must continue after connections were reset."""
NOTICED = 15.0
"""Seconds after which a dead connection is noticed."""


async def cut(site: TortureRun) -> None:
    """All connections are reset."""
    wound = site.hurt("reset every connection", *site.crew.of("worker"), shows="hands", within=SOON)
    site.line.cut()
    site.web.cut()
    wound.healed = wound.at


async def mute(site: TortureRun) -> None:
    """On every connection the next reply to a completed command is lost, and the connection with it."""
    wound = site.hurt("lose the answers", *site.crew.of("worker"), shows="hands", within=SOON)
    site.line.mute()
    site.web.mute()
    await site.rest(0.5, 1.5)
    site.line.heal()
    site.web.heal()
    site.heal(wound)


async def slow(site: TortureRun) -> None:
    """Everything takes longer, in both directions."""
    delay = site.chance.choice([0.05, 0.2])
    wound = site.hurt(f"delay everything by {delay:g} s", *site.crew.of("worker"), shows="hands", within=NOTICED)
    site.line.delay = delay
    await site.rest(3, 6)
    site.line.delay = 0.0
    site.heal(wound)


async def dark(site: TortureRun) -> None:
    """No packet arrives for a while, and no connection is closed."""
    wound = site.hurt("a black hole", *site.crew.of("worker"), shows="hands", within=NOTICED)
    site.line.dark = True
    await site.rest(3, 12)
    site.line.heal()
    site.heal(wound)


def dead(role: str, sign: str) -> Hurt:
    """The connections of one role go dead; new ones are alive."""

    async def hurt(site: TortureRun) -> None:
        hands = site.crew.of("worker")
        site.hurt(f"dead {role} connections", *hands, shows="hands", sign=sign, within=NOTICED)
        site.line.kill(role)
        await asyncio.sleep(NOTICED + 1)

    return hurt


async def terminate(site: TortureRun) -> None:
    """The server ends every connection of the application."""
    wound = site.hurt("terminate every backend", *site.crew.of("worker"), shows="hands", within=SOON)
    conn = await asyncpg.connect(site.place.dsn, timeout=10)
    try:
        await conn.execute(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid() and application_name like 'howdah %'"""
        )
    finally:
        await conn.close()
    wound.healed = wound.at
    await asyncio.sleep(0)


ROLES = (
    ("claim", "start", "timeout"),
    ("ack", "record", "timeout"),
    ("heartbeat", "beat", "timeout"),
    ("listen", "heard", "poll"),
    ("pool", "start", "timeout"),
)
"""Roles whose connections go dead, what shows that they live again, and the control."""

FAULTS = [
    Fault(name="cut", about="connections are reset", hurt=cut, controls=("transaction",), pause=(0.5, 5)),
    Fault(name="mute", about="answers are lost after the commit", hurt=mute, controls=("key", "transaction")),
    Fault(name="slow", about="the network is slow", hurt=slow, controls=("frontier",)),
    Fault(name="dark", about="the network is a black hole", hurt=dark, controls=("transaction",), pause=(3, 6)),
    Fault(name="terminate", about="backends are terminated", hurt=terminate, controls=("transaction",)),
    *(
        Fault(
            name=f"dead-{role}",
            about=f"{role} connections go dead",
            hurt=dead(role, sign),
            controls=(guard,),
            pause=(1, 2),
        )
        for role, sign, guard in ROLES
    ),
]
