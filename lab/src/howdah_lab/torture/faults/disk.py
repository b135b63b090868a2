"""Disks that are full."""

from __future__ import annotations

from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault

SOON = 5.0
"""Seconds after which work must continue when there is room again."""
RECOVERY = 60.0


async def fill(context: RunContext) -> None:
    """There is no room, and some time later there is."""
    injection = context.record_injection(
        "fill the disk", *context.processes.of("worker"), shows="processes", within=SOON
    )
    await context.server.fill()
    await context.rest(2, 8)
    await context.server.give_room()
    moment = await context.server.writable(RECOVERY)
    context.record_undone(injection)
    injection.undone = moment


FAULTS = [
    Fault(
        name="disk-full",
        about="the disk with the tables is full",
        inject=fill,
        controls=("transaction",),
        pause=(3, 8),
        server="small-tables",
        harms_server=True,
    ),
    Fault(
        name="wal-full",
        about="the disk with the write-ahead log is full, and PostgreSQL ends",
        inject=fill,
        controls=("transaction",),
        pause=(3, 8),
        server="small-log",
        harms_server=True,
    ),
]
