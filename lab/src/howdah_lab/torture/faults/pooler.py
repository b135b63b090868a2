"""A pooler that is killed and started again."""

from __future__ import annotations

from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault

SOON = 5.0
"""Seconds after which work must continue when the pooler answers again."""
RECOVERY = 60.0


async def restart(context: RunContext) -> None:
    """It takes every connection with it."""
    injection = context.record_injection(
        "kill -9 the pooler", *context.processes.of("worker"), shows="processes", within=SOON
    )
    await context.server.restart_pooler(context.chance.uniform(0, 3))
    moment = await context.server.writable(RECOVERY)
    context.record_undone(injection)
    injection.undone = moment


FAULTS = [
    Fault(
        name=f"pooler-{mode}",
        about=f"PgBouncer in {mode} mode is killed and started again",
        inject=restart,
        controls=("transaction",),
        pause=(2, 8),
        server=f"pooled-{mode}",
        harms_server=True,
    )
    for mode in ("session", "transaction")
]
