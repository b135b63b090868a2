"""A pooler that is killed and started again."""

from __future__ import annotations

from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.site import TortureRun

SOON = 5.0
"""Seconds after which work must continue when the pooler answers again."""
RECOVERY = 60.0


async def restart(site: TortureRun) -> None:
    """It takes every connection with it."""
    wound = site.hurt("kill -9 the pooler", *site.crew.of("worker"), shows="hands", within=SOON)
    await site.place.restart_pooler(site.chance.uniform(0, 3))
    moment = await site.place.writable(RECOVERY)
    site.heal(wound)
    wound.healed = moment


FAULTS = [
    Fault(
        name=f"pooler-{mode}",
        about=f"PgBouncer in {mode} mode is killed and started again",
        hurt=restart,
        controls=("transaction",),
        pause=(2, 8),
        place=f"pooled-{mode}",
        hurts_server=True,
    )
    for mode in ("session", "transaction")
]
