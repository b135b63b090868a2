"""An app for commands to run: ``-a kit.command_app:app``."""

from __future__ import annotations

import asyncio
import subprocess
import time

from howdah import Howdah, Poison

app = Howdah()
ORPHANS = 20
"""Processes that :func:`orphan` leaves without a parent."""


def _begin(kind: str) -> None:
    """That a job is claimed is in the database before it is known here; that it runs is known only here."""
    print(f"{kind} begins", flush=True)


@app.task
async def nap(seconds: float) -> None:
    """Ends when it is cancelled."""
    _begin("nap")
    await asyncio.sleep(seconds)


@app.task
def block(seconds: float) -> None:
    """Cannot be cancelled: it holds a thread."""
    _begin("block")
    time.sleep(seconds)


@app.task
def spin(seconds: float) -> None:
    """Calls functions as fast as a thread can."""
    _begin("spin")
    until = time.monotonic() + seconds
    while _now() < until:
        pass


def _now() -> float:
    return time.monotonic()


@app.task
async def hog(seconds: float) -> None:
    """Holds the event loop."""
    _begin("hog")
    time.sleep(seconds)


@app.task
async def refuse(seconds: float) -> None:
    """Will not be cancelled."""
    _begin("refuse")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pass


@app.task
async def orphan() -> int:
    """Start programs whose parent exits at once, and one whose exit code is returned."""
    own = subprocess.Popen(["sh", "-c", "exit 7"])
    for _ in range(ORPHANS):
        shell = await asyncio.create_subprocess_exec("sh", "-c", "setsid sleep 0.1 & exit 0")
        assert await shell.wait() == 0
    await asyncio.sleep(0.5)
    return own.wait()


@app.task
async def spoiled(n: int) -> None:
    """Fail without a retry."""
    raise Poison(f"{n} is spoiled")
