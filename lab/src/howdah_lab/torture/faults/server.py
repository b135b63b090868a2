"""A server that is shut down, crashes and comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from howdah_lab.torture.faults.fault import Fault, Hurt
from howdah_lab.torture.moments import MOMENTS, AckMoment
from howdah_lab.torture.site import TortureRun

SOON = 5.0
CONTROLS = {
    "claim": ("transaction", "sequence"),
    "ack": ("transaction", "flush"),
    "append": ("transaction", "flush"),
    "fleet-ack": ("transaction", "flush"),
}
"""By moment; of all others: ``transaction``."""


async def restart(site: TortureRun) -> None:
    """An immediate shutdown, then recovery."""
    await down(site, "shut PostgreSQL down at once", site.place.stop_immediately)


async def crash(site: TortureRun) -> None:
    """The postmaster is killed."""
    await down(site, "kill -9 the postmaster", site.place.crash)


def _crash_after(moment: AckMoment) -> Hurt:
    async def crash_after(site: TortureRun) -> None:
        """The postmaster is killed at the moment the server has answered."""

        async def end() -> None:
            await moment.comes(site, crash=True)
            await site.place.crash()

        await down(site, f"kill -9 the postmaster right after {moment.about}", end, longest=1.0)

    return crash_after


async def down(site: TortureRun, did: str, end: Callable[[], Awaitable[object]], longest: float = 5.0) -> None:
    """Let ``end`` end the server, and start it again at most ``longest`` seconds later."""
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=SOON)
    await end()
    await site.rest(0, longest)
    await site.place.start()
    await site.place.writable(60)
    site.heal(wound)


FAULTS = [
    Fault(
        name="restart",
        about="PostgreSQL is shut down immediately and restarted",
        hurt=restart,
        controls=("transaction",),
        pause=(5, 15),
        hurts_server=True,
    ),
    Fault(
        name="crash",
        about="the postmaster is killed",
        hurt=crash,
        controls=("transaction",),
        pause=(5, 15),
        hurts_server=True,
    ),
    *(
        Fault(
            name=f"crash-{name}",
            about=f"the postmaster is killed right after {moment.about}",
            hurt=_crash_after(moment),
            controls=CONTROLS.get(name, ("transaction",)),
            pause=(2, 6),
            place="unflushed",
            hurts_server=True,
        )
        for name, moment in MOMENTS.items()
    ),
]
