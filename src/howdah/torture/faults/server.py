"""A server that is shut down, crashes and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from howdah.torture.faults.fault import Fault, Hurt
from howdah.torture.site import Site

SOON = 5.0
MOST_WAITED = 10.0
"""Seconds after which the server is killed although the answer did not come."""
MOMENTS = {
    "claim": "right after a claim",
    "ack": "right after outcomes were recorded",
    "pool": "right after a handler or consumer committed",
    "heartbeat": "right after a heartbeat",
}
"""Roles of connections, and what the answer to one of them says."""


async def restart(site: Site) -> None:
    """An immediate shutdown, then recovery."""
    await _down(site, "shut PostgreSQL down at once", site.place.stop_immediately)


async def crash(site: Site) -> None:
    """The postmaster is killed."""
    await _down(site, "kill -9 the postmaster", site.place.crash)


def _crash_after(role: str) -> Hurt:
    async def crash_after(site: Site) -> None:
        """The postmaster is killed at the moment the server has answered."""

        async def end() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(MOST_WAITED):
                    await site.line.answered(role)
            await site.place.crash()

        await _down(site, f"kill -9 the postmaster {MOMENTS[role]}", end)

    return crash_after


async def _down(site: Site, did: str, end: Callable[[], Awaitable[object]]) -> None:
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=SOON)
    await end()
    await site.rest(0, 5)
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
            name=f"crash-{role}",
            about=f"the postmaster is killed {moment}",
            hurt=_crash_after(role),
            controls=("transaction",),
            pause=(5, 15),
            hurts_server=True,
        )
        for role, moment in MOMENTS.items()
    ),
]
