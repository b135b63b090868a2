"""An app for workers without a database: ``-a kit.remote_app:app``. It names none."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from howdah import Backoff, Cancel, Howdah, Poison, Snooze, Transaction, current_job

app = Howdah()
snoozed: set[int] = set()


@dataclass
class Parcel:
    """What arguments can be made of."""

    to: str
    at: datetime


@app.task
async def send(parcel: Parcel, copies: int = 1) -> dict[str, object]:
    """Says what it was given."""
    return {"type": type(parcel).__name__, "year": parcel.at.year, "to": parcel.to, "copies": copies}


@app.task
def in_thread() -> str:
    """Where it ran."""
    return threading.current_thread().name


@app.task(executor="process")
def in_process() -> int:
    """Where it ran."""
    return os.getpid()


@app.task
async def wait_a_little() -> str | Snooze:
    """Not now; the second time it is."""
    job = current_job()
    if job.id not in snoozed:
        snoozed.add(int(job.id))
        return Snooze(0.05)
    return f"attempt {job.attempt}"


@app.task
async def not_needed() -> Cancel:
    """Is cancelled by itself."""
    return Cancel("somebody else did it")


@app.task
async def spoiled() -> None:
    """No retry can help."""
    raise Poison("it is spoiled")


@app.task(max_attempts=3, retry=Backoff(first=0.05, jitter=0))
async def third_time() -> int:
    """Works the third time."""
    if current_job().attempt < 3:
        raise ValueError(f"attempt {current_job().attempt} fails")
    return current_job().attempt


@app.task(max_attempts=1, timeout=0.2)
async def too_slow() -> None:
    """Takes longer than it may."""
    await asyncio.sleep(60)


@app.task
async def traced() -> str | None:
    """The trace it belongs to."""
    return current_job().trace


@app.task
async def nap(seconds: float) -> None:
    """Sleeps, and says in a file that it began and that it ended."""
    note(f"begin {current_job().id}")
    await asyncio.sleep(seconds)
    note(f"end {current_job().id}")


@app.task(requires=["gpu"])
async def render() -> str:
    """Only where there is a GPU."""
    return "rendered"


@app.task(transactional=True)
async def book(tx: Transaction) -> None:
    """Needs the database."""
    await tx.execute("select 1")


@app.task
async def environment() -> bool:
    """Whether what it starts could read the token."""
    return any("TOKEN" in name for name in os.environ)


def note(line: str) -> None:
    """Add a line to the file of this test, if it has one."""
    if file := os.environ.get("ERRANDS"):
        with Path(file).open("a") as opened:
            opened.write(f"{line}\n")
