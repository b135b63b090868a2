"""A standby that is promoted, with workers that are frozen meanwhile and wake up on another server."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from howdah_lab.torture.ack_moments import MOMENTS
from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.processes import RunProcess

SOON = 15.0
"""Seconds after which work must continue when a primary takes writes; a new standby copies it meanwhile."""
RECOVERY = 60.0
AIMS = ("claim", "ack", "append", "rows")
"""Moments at which the primary is killed."""
LAG = 80
"""Tokens and positions that a standby lacks: PostgreSQL logs sequences 32 numbers ahead of time."""
START_TIMEOUT = 60.0
"""Seconds for that, and for a process to begin to work."""
AWAKE = 2
"""Workers with a database that are not frozen, at least."""


async def promote_sync(context: RunContext) -> None:
    """The standby has all that was acknowledged."""
    await _promote(context, _some(context))


async def promote_async(context: RunContext) -> None:
    """The standby lacks what was acknowledged last: where consumers are, and then, that some workers exist."""
    async with _held_back(context):
        await context.server.cut_off()
        await _fall_behind(context)
        await _promote(context, _some(context))
    await context.server.cut_off()
    processes = await _renew(context)
    await _fall_behind(context)
    await _promote(context, processes)


def _some(context: RunContext) -> list[RunProcess]:
    """Half of the workers with a database, and one without."""
    processes = context.processes.of("worker")
    return context.chance.sample(processes, len(processes) // 2) + context.processes.of("agent")[:1]


async def _promote(context: RunContext, frozen: list[RunProcess]) -> None:
    """Freeze some, kill the primary, promote its standby, and wake them up later. There is a standby again then."""
    await MOMENTS["claim"].comes(context)
    for process in frozen:
        context.record_injection(f"freeze {process.role} {process.pid}", process)
        context.processes.signal(process, signal.SIGSTOP)
    moment = MOMENTS[context.chance.choice(AIMS)]
    did = f"kill -9 the primary right after {moment.about}, and promote its standby"
    injection = context.record_injection(did, *context.processes.of("worker"), shows="processes", within=SOON)
    await moment.comes(context)
    await context.server.crash()
    await context.server.promote()
    if not context.server.synchronous:
        await _note_kept(context)
    context.proxy.to = context.server.address
    injection.undone = await context.server.writable(RECOVERY)
    context.log(f"{did}: over")
    async with asyncio.TaskGroup() as group:
        group.create_task(context.server.follow())
        if not context.server.synchronous:
            await _at_work(context, context.processes.worker(context.dsn))
        await asyncio.sleep(context.chance.uniform(0.2, 1.5) * context.intervals.lease)
        for process in frozen:
            context.processes.signal(process, signal.SIGCONT)
        context.log("they wake up")


async def _renew(context: RunContext) -> list[RunProcess]:
    """Start a worker of each kind in the place of another; a standby that is cut off does not know of them."""
    for process in [*context.processes.of("worker")[AWAKE:], *context.processes.of("agent")]:
        context.record_injection(f"kill -9 {process.role} {process.pid}", process)
        context.processes.kill(process)
    processes = [context.processes.worker(context.dsn), context.processes.agent(context.url)]
    for process in processes:
        await _at_work(context, process)
    return processes


async def _at_work(context: RunContext, process: RunProcess) -> None:
    """Wait until a process has begun to work."""
    until = time.monotonic() + START_TIMEOUT
    while not context.processes.has_started(process) and process.alive and time.monotonic() < until:
        await asyncio.sleep(0.05)


async def _fall_behind(context: RunContext) -> None:
    """Wait until the primary has given out numbers that the standby will give out again."""
    until = time.monotonic() + START_TIMEOUT
    conn = await asyncpg.connect(context.server.direct, timeout=10, command_timeout=10)
    try:
        began = await conn.fetchrow(context.sql["numbers"])
        while (
            min(now - then for now, then in zip(await conn.fetchrow(context.sql["numbers"]), began, strict=True)) < LAG
        ):
            if time.monotonic() > until:
                break
            await asyncio.gather(*(context.load.append() for _ in range(4)))
    finally:
        conn.terminate()


@asynccontextmanager
async def _held_back(context: RunContext) -> AsyncIterator[None]:
    """Lock the checkpoints of consumers: they stay as the standby has them, while the frontier of the log moves on."""
    conn = await asyncpg.connect(context.server.direct, timeout=10, command_timeout=10)
    try:
        await conn.execute("begin")
        await conn.execute(context.sql["hold_checkpoints"])
        yield
    finally:
        conn.terminate()


async def _note_kept(context: RunContext) -> None:
    """Write down what the new primary has, before a client can reach it."""
    conn = await asyncpg.connect(context.server.direct, timeout=10, command_timeout=60)
    try:
        rows = await conn.fetch(context.sql["kept"])
    finally:
        conn.terminate()
    context.ledger_writer.write("kept", "", *(row["mark"] for row in rows))


FAULTS = [
    Fault(
        name="promote-sync",
        about="a synchronous standby is promoted, and workers sleep through it",
        inject=promote_sync,
        controls=("flush", "transaction"),
        pause=(1, 4),
        server="replicated-sync",
        harms_server=True,
    ),
    Fault(
        name="promote-async",
        about="a standby that was cut off is promoted, and workers sleep through it",
        inject=promote_async,
        controls=("sequence", "run"),
        pause=(1, 4),
        server="replicated-async",
        harms_server=True,
    ),
]
