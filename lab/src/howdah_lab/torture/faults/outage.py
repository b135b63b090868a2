"""An outage of the server, or of the control plane, that is longer than a lease."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from howdah.node.contact import grace_of
from howdah_lab.torture.checker import Violation, finding
from howdah_lab.torture.evidence import Evidence
from howdah_lab.torture.faults.connections import NOTICED
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.servers.ports import answers
from howdah_lab.torture.site import TortureRun

LONGER = (1.3, 2.0)
"""Least and greatest length of an outage, in leases."""
RECOVERY = 60.0
"""Seconds after which the server must take writes again."""
MARGIN = 1.0
"""Seconds by which our times of an outage may differ from those of the server."""


async def outage(site: TortureRun) -> None:
    """Keep every process from renewing its leases until they have expired."""
    keep_away = site.chance.choice((_stop_server, _block_server, _stop_control_plane))
    await keep_away(site, site.chance.uniform(*LONGER) * site.beats.lease)
    # The interrupted work ends before the next outage begins.
    await site.rest(site.beats.lease, 2 * site.beats.lease)


async def _stop_server(site: TortureRun, seconds: float) -> None:
    did = f"stop PostgreSQL for {seconds:.1f} s"
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=NOTICED)
    await site.place.stop_immediately()
    await asyncio.sleep(seconds)
    await site.place.start()
    await site.place.writable(RECOVERY)
    site.heal(wound)


async def _block_server(site: TortureRun, seconds: float) -> None:
    did = f"block every connection to PostgreSQL for {seconds:.1f} s"
    wound = site.hurt(did, *site.crew.of("worker"), shows="hands", within=NOTICED)
    site.line.dark = True
    await asyncio.sleep(seconds)
    site.line.heal()
    site.heal(wound)


async def _stop_control_plane(site: TortureRun, seconds: float) -> None:
    did = f"stop the control plane for {seconds:.1f} s"
    wound = site.hurt(did, *site.crew.of("agent"), shows="hands", within=NOTICED)
    for plane in site.crew.of("plane"):
        site.crew.kill(plane)
        await asyncio.sleep(seconds)
        site.man(plane)
    while not await answers(site.port):
        await asyncio.sleep(0.05)
    site.heal(wound)


async def judge(evidence: Evidence) -> list[Violation]:
    """Find jobs and rows that were charged for an outage: no worker is killed or frozen, so nothing else is charged.

    The machine may be so busy that a process renews its leases only after the grace: such resets are not counted.
    """
    since_boot = time.time() - time.monotonic()
    late = _late(evidence)
    charged = [
        f"{row['front']} {row['mark']}: {row['attempts']} attempts, {row['resets']} resets"
        for row in await evidence.conn.fetch(evidence.sql["charged"])
        if row["at"] is None or not any(begin <= row["at"] - since_boot <= end for begin, end in late)
    ]
    found = finding("I6", "jobs and rows that were charged for an outage", charged)
    return [found] if found else []


def _late(evidence: Evidence) -> list[tuple[float, float]]:
    """Times in which leases may be reset, because a process was not back within the grace after an outage."""
    site = evidence.site
    grace = grace_of(site.beats.lease) - MARGIN
    beats: dict[int, list[float]] = defaultdict(list)
    for entry in evidence.entries:
        if entry.what == "beat":
            beats[entry.pid].append(entry.at)
    late = []
    for wound in site.wounds:
        for times in beats.values():
            first = next((at for at in times if at > wound.since), wound.since)
            if times[0] < wound.at and first > wound.since + grace:
                late.append((wound.since + grace, first + MARGIN))
    return late


FAULTS = [
    Fault(
        name="outage",
        about="PostgreSQL is stopped or unreachable, or the control plane is away, for longer than a lease",
        hurt=outage,
        controls=("contact",),
        pause=(1, 3),
        hurts_server=True,
        judge=judge,
    ),
]
