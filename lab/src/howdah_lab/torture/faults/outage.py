"""An outage of the server, or of the control plane, that is longer than a lease."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from howdah.node.heartbeat import grace_of
from howdah_lab.torture.checker import Violation, finding
from howdah_lab.torture.context import CheckInput, RunContext
from howdah_lab.torture.faults.connections import NOTICED
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.servers.ports import answers

LONGER = (1.3, 2.0)
"""Least and greatest length of an outage, in leases."""
RECOVERY = 60.0
"""Seconds after which the server must take writes again."""
MARGIN = 1.0
"""Seconds by which our times of an outage may differ from those of the server."""


async def outage(context: RunContext) -> None:
    """Keep every process from renewing its leases until they have expired."""
    keep_away = context.chance.choice((_stop_server, _block_server, _stop_control_plane))
    await keep_away(context, context.chance.uniform(*LONGER) * context.intervals.lease)
    # The interrupted work ends before the next outage begins.
    await context.rest(context.intervals.lease, 2 * context.intervals.lease)


async def _stop_server(context: RunContext, seconds: float) -> None:
    did = f"stop PostgreSQL for {seconds:.1f} s"
    injection = context.record_injection(did, *context.processes.of("worker"), shows="processes", within=NOTICED)
    await context.server.stop_immediately()
    await asyncio.sleep(seconds)
    await context.server.start()
    await context.server.writable(RECOVERY)
    context.record_undone(injection)


async def _block_server(context: RunContext, seconds: float) -> None:
    did = f"block every connection to PostgreSQL for {seconds:.1f} s"
    injection = context.record_injection(did, *context.processes.of("worker"), shows="processes", within=NOTICED)
    context.proxy.dark = True
    await asyncio.sleep(seconds)
    context.proxy.restore()
    context.record_undone(injection)


async def _stop_control_plane(context: RunContext, seconds: float) -> None:
    did = f"stop the control plane for {seconds:.1f} s"
    injection = context.record_injection(did, *context.processes.of("agent"), shows="processes", within=NOTICED)
    for plane in context.processes.of("plane"):
        context.processes.kill(plane)
        await asyncio.sleep(seconds)
        context.start_replacement(plane)
    while not await answers(context.port):
        await asyncio.sleep(0.05)
    context.record_undone(injection)


async def verify(results: CheckInput) -> list[Violation]:
    """Find jobs and rows that were charged for an outage: no worker is killed or frozen, so nothing else is charged.

    The machine may be so busy that a process renews its leases only after the grace: such resets are not counted.
    """
    since_boot = time.time() - time.monotonic()
    late = _late(results)
    charged = [
        f"{row['front']} {row['mark']}: {row['attempts']} attempts, {row['resets']} resets"
        for row in await results.conn.fetch(results.sql["charged"])
        if row["at"] is None or not any(begin <= row["at"] - since_boot <= end for begin, end in late)
    ]
    found = finding("I6", "jobs and rows that were charged for an outage", charged)
    return [found] if found else []


def _late(results: CheckInput) -> list[tuple[float, float]]:
    """Times in which leases may be reset, because a process was not back within the grace after an outage."""
    context = results.context
    grace = grace_of(context.intervals.lease) - MARGIN
    heartbeats: dict[int, list[float]] = defaultdict(list)
    for entry in results.entries:
        if entry.what == "beat":
            heartbeats[entry.pid].append(entry.at)
    late = []
    for injection in context.injections:
        for times in heartbeats.values():
            first = next((at for at in times if at > injection.since), injection.since)
            if times[0] < injection.at and first > injection.since + grace:
                late.append((injection.since + grace, first + MARGIN))
    return late


FAULTS = [
    Fault(
        name="outage",
        about="PostgreSQL is stopped or unreachable, or the control plane is away, for longer than a lease",
        inject=outage,
        controls=("contact",),
        pause=(1, 3),
        harms_server=True,
        verify=verify,
    ),
]
