"""A primary that is killed, hands over, or is frozen until another has taken its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.site import TortureRun

SOON = 5.0
"""Seconds after which work must continue when there is a primary that takes writes."""
OUTAGE = 90.0
"""Seconds after which there must be a primary in every case."""
FROZEN = (22.0, 28.0)
"""Seconds a primary is frozen: long enough for the other to take over, so that it wakes up as one of two."""


async def kill(site: TortureRun) -> None:
    """The primary loses its power, and is switched on again later."""
    await _fail_over(site, "kill -9 the primary and its Patroni", site.place.kill_leader)
    await site.place.revive()


async def switch(site: TortureRun) -> None:
    """The primary hands over, as before maintenance."""
    await _fail_over(site, "switch over to the standby", site.place.switchover)
    await site.place.whole()


async def freeze(site: TortureRun) -> None:
    """The primary is frozen, and still acts as primary when it resumes."""
    seconds = site.chance.uniform(*FROZEN)
    await _fail_over(site, f"freeze the primary for {seconds:.0f} s", lambda: site.place.freeze_leader(seconds))
    await site.place.whole()


async def _fail_over(site: TortureRun, did: str, act: Callable[[], Awaitable[object]]) -> None:
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=SOON)
    await act()
    moment = await site.place.writable(OUTAGE)
    site.heal(wound)
    wound.healed = moment


def _fault(name: str, about: str, hurt: Callable[[TortureRun], Awaitable[None]]) -> Fault:
    return Fault(
        name=name, about=about, hurt=hurt, controls=("transaction",), pause=(3, 8), place="cluster", hurts_server=True
    )


FAULTS = [
    _fault("failover-kill", "the primary of a cluster is killed", kill),
    _fault("failover-switch", "the primary of a cluster hands over", switch),
    _fault("failover-freeze", "the primary of a cluster is frozen and wakes up", freeze),
]
