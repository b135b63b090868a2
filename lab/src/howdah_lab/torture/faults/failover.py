"""A primary that is killed, hands over, or is frozen until another has taken its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault

SOON = 5.0
"""Seconds after which work must continue when there is a primary that takes writes."""
OUTAGE = 90.0
"""Seconds after which there must be a primary in every case."""
FROZEN = (22.0, 28.0)
"""Seconds a primary is frozen: long enough for the other to take over, so that it wakes up as one of two."""


async def kill(context: RunContext) -> None:
    """The primary loses its power, and is switched on again later."""
    await _fail_over(context, "kill -9 the primary and its Patroni", context.server.kill_leader)
    await context.server.revive()


async def switch(context: RunContext) -> None:
    """The primary hands over, as before maintenance."""
    await _fail_over(context, "switch over to the standby", context.server.switchover)
    await context.server.whole()


async def freeze(context: RunContext) -> None:
    """The primary is frozen, and still acts as primary when it resumes."""
    seconds = context.chance.uniform(*FROZEN)
    await _fail_over(context, f"freeze the primary for {seconds:.0f} s", lambda: context.server.freeze_leader(seconds))
    await context.server.whole()


async def _fail_over(context: RunContext, did: str, act: Callable[[], Awaitable[object]]) -> None:
    injection = context.record_injection(did, *context.processes.of("worker"), shows="processes", within=SOON)
    await act()
    moment = await context.server.writable(OUTAGE)
    context.record_undone(injection)
    injection.undone = moment


def _fault(name: str, about: str, inject: Callable[[RunContext], Awaitable[None]]) -> Fault:
    return Fault(
        name=name,
        about=about,
        inject=inject,
        controls=("transaction",),
        pause=(3, 8),
        server="cluster",
        harms_server=True,
    )


FAULTS = [
    _fault("failover-kill", "the primary of a cluster is killed", kill),
    _fault("failover-switch", "the primary of a cluster hands over", switch),
    _fault("failover-freeze", "the primary of a cluster is frozen and wakes up", freeze),
]
