"""A server that is shut down, crashes and comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from howdah_lab.torture.ack_moments import MOMENTS, AckMoment
from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault, Inject

SOON = 5.0
CONTROLS = {
    "claim": ("transaction", "sequence"),
    "ack": ("transaction", "flush"),
    "append": ("transaction", "flush"),
    "fleet-ack": ("transaction", "flush"),
}
"""By moment; of all others: ``transaction``."""


async def restart(context: RunContext) -> None:
    """An immediate shutdown, then recovery."""
    await down(context, "shut PostgreSQL down at once", context.server.stop_immediately)


async def crash(context: RunContext) -> None:
    """The postmaster is killed."""
    await down(context, "kill -9 the postmaster", context.server.crash)


def _crash_after(moment: AckMoment) -> Inject:
    async def crash_after(context: RunContext) -> None:
        """The postmaster is killed at the moment the server has answered."""

        async def end() -> None:
            await moment.comes(context, crash=True)
            await context.server.crash()

        await down(context, f"kill -9 the postmaster right after {moment.about}", end, longest=1.0)

    return crash_after


async def down(context: RunContext, did: str, end: Callable[[], Awaitable[object]], longest: float = 5.0) -> None:
    """Let ``end`` end the server, and start it again at most ``longest`` seconds later."""
    injection = context.record_injection(did, *context.processes.of("worker"), shows="processes", within=SOON)
    await end()
    await context.rest(0, longest)
    await context.server.start()
    await context.server.writable(60)
    context.record_undone(injection)


FAULTS = [
    Fault(
        name="restart",
        about="PostgreSQL is shut down immediately and restarted",
        inject=restart,
        controls=("transaction",),
        pause=(5, 15),
        harms_server=True,
    ),
    Fault(
        name="crash",
        about="the postmaster is killed",
        inject=crash,
        controls=("transaction",),
        pause=(5, 15),
        harms_server=True,
    ),
    *(
        Fault(
            name=f"crash-{name}",
            about=f"the postmaster is killed right after {moment.about}",
            inject=_crash_after(moment),
            controls=CONTROLS.get(name, ("transaction",)),
            pause=(2, 6),
            server="unflushed",
            harms_server=True,
        )
        for name, moment in MOMENTS.items()
    ),
]
