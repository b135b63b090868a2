"""An app for commands to run: ``-a kit.chores:app``."""

from __future__ import annotations

import asyncio
import time

from howdah import Howdah

app = Howdah()


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
