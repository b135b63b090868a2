"""An app that takes memory: ``-a kit.memory_app:app``."""

from __future__ import annotations

import os
import random
from pathlib import Path

from howdah import Backoff, Howdah, Poison, Snooze, current_job

app = Howdah()
SOON = Backoff(first=0.05, cap=0.1)
kept: list[bytes] = []


def _take(group: str, megabytes: int) -> int:
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    hoard = [os.urandom(2**20) for _ in range(megabytes)]
    return len(hoard)


@app.task(executor="process", max_attempts=3, retry=SOON)
def take_apart(group: str, megabytes: int) -> int:
    """Joins a group and takes so much memory, in a process of its own."""
    return _take(group, megabytes)


@app.task(max_attempts=3, retry=SOON)
def take_here(group: str, megabytes: int) -> int:
    """The same in the process of the node."""
    return _take(group, megabytes)


@app.task(executor="process")
def modest(n: int) -> int:
    """Another slot with a process of its own."""
    return n


@app.task(max_attempts=2, retry=SOON)
async def mixed(n: int) -> int | Snooze:
    """Of every ten one fails and is tried again, one is snoozed now and then, and of every hundred one is poison."""
    if n % 100 == 2:
        raise Poison(f"{n} cannot be")
    if n % 10 == 0 and current_job().attempt == 1:
        raise ValueError(f"{n} is not for now")
    if n % 10 == 1 and random.random() < 0.5:
        return Snooze(0.05)
    return n


@app.task
async def keep(n: int) -> None:
    """Forgets nothing."""
    kept.append(os.urandom(4096))
