"""Processes that are killed, frozen and stopped."""

from __future__ import annotations

import asyncio
import signal

from howdah_lab.torture.crew import Hand
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.site import TortureRun

ROLES = ("worker", "worker", "worker", "agent", "plane")
"""Roles of the processes to hit; a role named more often is hit more often."""


async def kill(site: TortureRun) -> None:
    """One is killed, and another takes its place."""
    hand = site.anyone(site.chance.choice(ROLES))
    if hand is None:
        return
    site.hurt(f"kill -9 {hand.role} {hand.pid}", hand, shows="jobs", within=site.beats.lease + 5)
    site.crew.kill(hand)
    await asyncio.sleep(site.chance.uniform(0, 0.5))
    await site.replace(hand)


async def freeze(site: TortureRun) -> None:
    """Some are frozen until after their lease, and resume as if nothing had happened."""
    hands = site.crew.of("worker")
    hands = site.chance.sample(hands, len(hands) // 2) + site.crew.of("agent")[:1]
    for hand in hands:
        site.hurt(f"freeze {hand.role} {hand.pid}", hand, shows="jobs", within=site.beats.lease + 5)
        site.crew.signal(hand, signal.SIGSTOP)
    await site.rest(1.3 * site.beats.lease, 2 * site.beats.lease)
    for hand in hands:
        site.crew.signal(hand, signal.SIGCONT)
    site.say("they wake up")


async def stop(site: TortureRun) -> None:
    """One is asked to end, which takes at most its grace; unfinished jobs are released."""
    hand = site.anyone(site.chance.choice(("worker", "worker", "agent")))
    if hand is None:
        return
    await site.replace(hand)
    site.hurt(f"stop {hand.role} {hand.pid}", hand, shows="jobs", within=site.beats.grace + 7)
    await end(site, hand)


async def end(site: TortureRun, hand: Hand) -> None:
    """Tell one to end, and wait until it has; one that does not is killed, and found by the checker."""
    site.crew.tell(hand)
    try:
        async with asyncio.timeout(site.beats.grace + 5):
            while hand.alive:
                await asyncio.sleep(0.05)
    except TimeoutError:
        site.crew.signal(hand, signal.SIGKILL)  # the checker reports it as a process that did not stop


FAULTS = [
    Fault(name="kill", about="processes are killed", hurt=kill, controls=("reset", "transaction")),
    Fault(name="freeze", about="processes are frozen past their lease and wake up", hurt=freeze, controls=("fence",)),
    Fault(name="stop", about="processes are stopped as a deploy does", hurt=stop, controls=("transaction",)),
]
