"""Connections that are cut, go dead, become slow, or are ended by the server."""

from __future__ import annotations

import asyncio

import asyncpg

from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault, Inject

SOON = 5.0
"""Seconds after which work must continue after connections were reset."""
MUTED_AGAIN = 0.05
"""Seconds after which new connections are muted, too."""
NOTICED = 15.0
"""Seconds after which a dead connection is noticed."""


async def cut(context: RunContext) -> None:
    """All connections are reset."""
    injection = context.record_injection(
        "reset every connection", *context.processes.of("worker"), shows="processes", within=SOON
    )
    context.proxy.cut()
    context.http_proxy.cut()
    injection.undone = injection.at


async def mute(context: RunContext) -> None:
    """On every connection the next reply to a completed command is lost, and the connection with it.

    Then for a while every reply to an enqueue: what a client asks for again meets what it has asked for before.
    """
    injection = context.record_injection(
        "lose the answers", *context.processes.of("worker"), shows="processes", within=SOON
    )
    context.proxy.mute()
    context.http_proxy.mute()
    await context.rest(0.2, 0.5)
    resting = asyncio.ensure_future(context.rest(0.5, 1))
    while not resting.done():
        context.proxy.mute(statement="-- enqueue")
        await asyncio.wait([resting], timeout=MUTED_AGAIN)
    context.proxy.restore()
    context.http_proxy.restore()
    context.record_undone(injection)


async def slow(context: RunContext) -> None:
    """Everything takes longer, in both directions."""
    delay = context.chance.choice([0.05, 0.2])
    injection = context.record_injection(
        f"delay everything by {delay:g} s", *context.processes.of("worker"), shows="processes", within=NOTICED
    )
    context.proxy.delay = delay
    await context.rest(3, 6)
    context.proxy.delay = 0.0
    context.record_undone(injection)


async def dark(context: RunContext) -> None:
    """No packet arrives for a while, and no connection is closed."""
    injection = context.record_injection(
        "a black hole", *context.processes.of("worker"), shows="processes", within=NOTICED
    )
    context.proxy.dark = True
    await context.rest(3, 12)
    context.proxy.restore()
    context.record_undone(injection)


def dead(role: str, sign: str) -> Inject:
    """The connections of one role go dead; new ones are alive."""

    async def inject(context: RunContext) -> None:
        processes = context.processes.of("worker")
        context.record_injection(f"dead {role} connections", *processes, shows="processes", sign=sign, within=NOTICED)
        context.proxy.kill(role)
        await asyncio.sleep(NOTICED + 1)

    return inject


async def terminate(context: RunContext) -> None:
    """The server ends every connection of the application."""
    injection = context.record_injection(
        "terminate every backend", *context.processes.of("worker"), shows="processes", within=SOON
    )
    conn = await asyncpg.connect(context.server.dsn, timeout=10)
    try:
        await conn.execute(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid() and application_name like 'howdah %'"""
        )
    finally:
        await conn.close()
    injection.undone = injection.at
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
    Fault(name="cut", about="connections are reset", inject=cut, controls=("transaction",), pause=(0.5, 5)),
    Fault(name="mute", about="answers are lost after the commit", inject=mute, controls=("key", "transaction")),
    Fault(name="slow", about="the network is slow", inject=slow, controls=("frontier",)),
    Fault(name="dark", about="the network is a black hole", inject=dark, controls=("transaction",), pause=(3, 6)),
    Fault(name="terminate", about="backends are terminated", inject=terminate, controls=("transaction",)),
    *(
        Fault(
            name=f"dead-{role}",
            about=f"{role} connections go dead",
            inject=dead(role, sign),
            controls=(guard,),
            pause=(1, 2),
        )
        for role, sign, guard in ROLES
    ),
]
