"""Two releases of the application side by side, whose nodes come and go in any order."""

from __future__ import annotations

import asyncio
import signal
import time

from howdah_lab.torture.checker import Violation
from howdah_lab.torture.context import CheckInput, RunContext
from howdah_lab.torture.declaration_check import AddedEvent, CurrentDeclaration, ReleaseHistory, ScheduledJob, check
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.faults.processes import end
from howdah_lab.torture.processes import RunProcess
from howdah_lab.torture.release import NEW, OLD, RELEASE, STALLED_AFTER

MOST = 5
"""Nodes of both releases at once; a machine has to bear them."""
ACTS = ("start", "stop", "kill", "freeze", "wake")


async def roll(context: RunContext) -> None:
    """Play every act on both releases once, in any order. In the end all nodes are awake, one of them a new one."""
    cards = [(act, release) for act in ACTS for release in (OLD, NEW)]
    context.chance.shuffle(cards)
    for act, release in cards:
        if context.over.is_set():
            break
        await _play(context, act, release)
        await context.rest(0.2, 1.5)
    context.thaw()
    if not _at_work(context, NEW):
        await _start(context, NEW)


async def _play(context: RunContext, act: str, release: str) -> None:
    """Do one act to one node of a release; at least one node stays at work."""
    if act == "start":
        await _start(context, release)
        return
    if act == "wake":
        for process in context.processes.running:
            if process.release == release and process.frozen:
                context.processes.signal(process, signal.SIGCONT)
                context.log(f"wake {release} {process.pid}")
        return
    if not _at_work(context, release):
        await _start(context, release)
    if len(_at_work(context)) < 2:
        await _start(context, OLD if release == NEW else NEW)
    if not (processes := _at_work(context, release)):
        return
    process = context.chance.choice(processes)
    within = max(STALLED_AFTER.values()) + context.intervals.lease + 5
    context.record_injection(f"{act} {release} {process.pid}", process, shows="jobs", within=within)
    if act == "stop":
        await end(context, process)
    elif act == "kill":
        context.processes.kill(process)
    else:
        context.processes.signal(process, signal.SIGSTOP)


async def _start(context: RunContext, release: str) -> None:
    """Start a node; one that is at work gives way to it when there are too many."""
    if len(context.processes.of("worker")) >= MOST:
        await end(context, context.chance.choice(context.processes.of("worker")))
    context.record_injection(f"start {release}")
    other = context.worker(release)
    while not context.processes.has_started(other) and other.alive:
        await asyncio.sleep(0.05)


def _at_work(context: RunContext, release: str | None = None) -> list[RunProcess]:
    return [process for process in context.processes.of("worker") if release in (None, process.release)]


async def verify(results: CheckInput) -> list[Violation]:
    """Find what was not done as the current declarations say."""
    conn, statements, history = results.conn, results.sql, results.history
    processes = results.context.processes
    offset = await _offset(results)
    declared = ReleaseHistory(
        ticks=[ScheduledJob(**row) for row in await conn.fetch(statements["ticks"])],
        releases={process.pid: process.release for process in processes.past + processes.running if process.release},
        declarations=[
            CurrentDeclaration(row["id"], "Ordered" in (row["types"] or ()), row["reached"])
            for row in await conn.fetch(statements["declaration_changes"])
        ],
        added=[AddedEvent(**row) for row in await conn.fetch(statements["ordered"])],
        events={mark for front, mark in history.acked if front == "events"},
        resets=[
            (row["mark"], int(row["node"].rpartition(":")[2] or 0), row["silence"])
            for row in await conn.fetch(statements["reset_rows"])
        ],
    )
    for (front, mark), times in history.times.items():
        declared.effects[front][mark] = times
    for entry in results.entries:
        if entry.what == "beat":
            declared.heartbeats.setdefault(entry.pid, []).append(entry.at + offset)
    return check(declared)


async def _offset(results: CheckInput) -> float:
    """Seconds from the monotonic clock of this machine to the clock of the server."""
    before = time.monotonic()
    server: float = await results.conn.fetchval(results.sql["clock"])
    return server - (before + time.monotonic()) / 2


FAULTS = [
    Fault(
        name="releases",
        about="nodes of two releases with different declarations come, go, freeze and wake up",
        inject=roll,
        controls=("declaration",),
        pause=(0.2, 1.0),
        environment={RELEASE: OLD},
        verify=verify,
    ),
]
