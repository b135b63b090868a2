"""Disks that are full."""

from __future__ import annotations

from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.site import TortureRun

SOON = 5.0
"""Seconds after which work must continue when there is room again."""
RECOVERY = 60.0


async def fill(site: TortureRun) -> None:
    """There is no room, and some time later there is."""
    wound = site.hurt("fill the disk", *site.crew.of("worker"), shows="hands", within=SOON)
    await site.place.fill()
    await site.rest(2, 8)
    await site.place.give_room()
    moment = await site.place.writable(RECOVERY)
    site.heal(wound)
    wound.healed = moment


FAULTS = [
    Fault(
        name="disk-full",
        about="the disk with the tables is full",
        hurt=fill,
        controls=("transaction",),
        pause=(3, 8),
        place="small-tables",
        hurts_server=True,
    ),
    Fault(
        name="wal-full",
        about="the disk with the write-ahead log is full, and PostgreSQL ends",
        hurt=fill,
        controls=("transaction",),
        pause=(3, 8),
        place="small-log",
        hurts_server=True,
    ),
]
