"""Processes that are killed, frozen and stopped."""

from __future__ import annotations

import asyncio
import signal

from howdah_lab.torture.context import RunContext
from howdah_lab.torture.faults.fault import Fault
from howdah_lab.torture.processes import RunProcess

ROLES = ("worker", "worker", "worker", "agent", "plane")
"""Roles of the processes to hit; a role named more often is hit more often."""


async def kill(context: RunContext) -> None:
    """One is killed, and another takes its place."""
    process = context.pick(context.chance.choice(ROLES))
    if process is None:
        return
    context.record_injection(
        f"kill -9 {process.role} {process.pid}", process, shows="jobs", within=context.intervals.lease + 5
    )
    context.processes.kill(process)
    await asyncio.sleep(context.chance.uniform(0, 0.5))
    await context.replace(process)


async def freeze(context: RunContext) -> None:
    """Some are frozen until after their lease, and resume as if nothing had happened."""
    processes = context.processes.of("worker")
    processes = context.chance.sample(processes, len(processes) // 2) + context.processes.of("agent")[:1]
    for process in processes:
        context.record_injection(
            f"freeze {process.role} {process.pid}", process, shows="jobs", within=context.intervals.lease + 5
        )
        context.processes.signal(process, signal.SIGSTOP)
    await context.rest(1.3 * context.intervals.lease, 2 * context.intervals.lease)
    for process in processes:
        context.processes.signal(process, signal.SIGCONT)
    context.log("they wake up")


async def stop(context: RunContext) -> None:
    """One is asked to end, which takes at most its grace; unfinished jobs are released."""
    process = context.pick(context.chance.choice(("worker", "worker", "agent")))
    if process is None:
        return
    await context.replace(process)
    context.record_injection(
        f"stop {process.role} {process.pid}", process, shows="jobs", within=context.intervals.grace + 7
    )
    await end(context, process)


async def end(context: RunContext, process: RunProcess) -> None:
    """Tell one to end, and wait until it has; one that does not is killed, and found by the checker."""
    context.processes.stop(process)
    try:
        async with asyncio.timeout(context.intervals.grace + 5):
            while process.alive:
                await asyncio.sleep(0.05)
    except TimeoutError:
        context.processes.signal(process, signal.SIGKILL)  # the checker reports it as a process that did not stop


FAULTS = [
    Fault(name="kill", about="processes are killed", inject=kill, controls=("reset", "transaction")),
    Fault(name="freeze", about="processes are frozen past their lease and wake up", inject=freeze, controls=("fence",)),
    Fault(name="stop", about="processes are stopped as a deploy does", inject=stop, controls=("transaction",)),
]
