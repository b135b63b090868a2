"""Two releases of the application side by side, whose nodes come and go in any order."""

from __future__ import annotations

import asyncio
import signal
import time

from howdah_lab.torture.checker import Violation
from howdah_lab.torture.crew import Hand
from howdah_lab.torture.declared import Added, Declared, Reign, Tick, check
from howdah_lab.torture.evidence import Evidence
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.faults.processes import end
from howdah_lab.torture.release import NEW, OLD, RELEASE, STALLED_AFTER
from howdah_lab.torture.site import TortureRun

MOST = 5
"""Nodes of both releases at once; a machine has to bear them."""
ACTS = ("start", "stop", "kill", "freeze", "wake")


async def roll(site: TortureRun) -> None:
    """Play every act on both releases once, in any order. In the end all nodes are awake, one of them a new one."""
    cards = [(act, release) for act in ACTS for release in (OLD, NEW)]
    site.chance.shuffle(cards)
    for act, release in cards:
        if site.over.is_set():
            break
        await _play(site, act, release)
        await site.rest(0.2, 1.5)
    site.thaw()
    if not _at_work(site, NEW):
        await _start(site, NEW)


async def _play(site: TortureRun, act: str, release: str) -> None:
    """Do one act to one node of a release; at least one node stays at work."""
    if act == "start":
        await _start(site, release)
        return
    if act == "wake":
        for hand in site.crew.hands:
            if hand.release == release and hand.frozen:
                site.crew.signal(hand, signal.SIGCONT)
                site.say(f"wake {release} {hand.pid}")
        return
    if not _at_work(site, release):
        await _start(site, release)
    if len(_at_work(site)) < 2:
        await _start(site, OLD if release == NEW else NEW)
    if not (hands := _at_work(site, release)):
        return
    hand = site.chance.choice(hands)
    within = max(STALLED_AFTER.values()) + site.beats.lease + 5
    site.hurt(f"{act} {release} {hand.pid}", hand, shows="jobs", within=within)
    if act == "stop":
        await end(site, hand)
    elif act == "kill":
        site.crew.kill(hand)
    else:
        site.crew.signal(hand, signal.SIGSTOP)


async def _start(site: TortureRun, release: str) -> None:
    """Start a node; one that is at work gives way to it when there are too many."""
    if len(site.crew.of("worker")) >= MOST:
        await end(site, site.chance.choice(site.crew.of("worker")))
    site.hurt(f"start {release}")
    other = site.worker(release)
    while not site.crew.is_at_work(other) and other.alive:
        await asyncio.sleep(0.05)


def _at_work(site: TortureRun, release: str | None = None) -> list[Hand]:
    return [hand for hand in site.crew.of("worker") if release in (None, hand.release)]


async def judge(evidence: Evidence) -> list[Violation]:
    """Find what was not done as the current declarations say."""
    conn, statements, books = evidence.conn, evidence.sql, evidence.books
    crew = evidence.site.crew
    offset = await _offset(evidence)
    declared = Declared(
        ticks=[Tick(**row) for row in await conn.fetch(statements["ticks"])],
        releases={hand.pid: hand.release for hand in crew.past + crew.hands if hand.release},
        reigns=[
            Reign(row["id"], "Ordered" in (row["types"] or ()), row["reached"])
            for row in await conn.fetch(statements["reigns"])
        ],
        added=[Added(**row) for row in await conn.fetch(statements["ordered"])],
        events={mark for front, mark in books.acked if front == "events"},
        resets=[
            (row["mark"], int(row["node"].rpartition(":")[2] or 0), row["silence"])
            for row in await conn.fetch(statements["reset_rows"])
        ],
    )
    for (front, mark), times in books.times.items():
        declared.effects[front][mark] = times
    for entry in evidence.entries:
        if entry.what == "beat":
            declared.beats.setdefault(entry.pid, []).append(entry.at + offset)
    return check(declared)


async def _offset(evidence: Evidence) -> float:
    """Seconds from the monotonic clock of this machine to the clock of the server."""
    before = time.monotonic()
    server: float = await evidence.conn.fetchval(evidence.sql["clock"])
    return server - (before + time.monotonic()) / 2


FAULTS = [
    Fault(
        name="releases",
        about="nodes of two releases with different declarations come, go, freeze and wake up",
        hurt=roll,
        controls=("declaration",),
        pause=(0.2, 1.0),
        environment={RELEASE: OLD},
        judge=judge,
    ),
]
