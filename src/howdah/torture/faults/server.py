"""A server that is shut down, crashes and comes back."""

from __future__ import annotations

from howdah.torture.faults.fault import Fault
from howdah.torture.site import Site

SOON = 5.0


async def restart(site: Site) -> None:
    """An immediate shutdown, then recovery."""
    await _down(site, "shut PostgreSQL down at once", site.place.stop_immediately)


async def crash(site: Site) -> None:
    """The postmaster is killed."""
    await _down(site, "kill -9 the postmaster", site.place.crash)


async def _down(site: Site, did: str, end: object) -> None:
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=SOON)
    await end()  # type: ignore[operator]
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
]
