"""An app for commands to run: ``-a kit.chores:app``."""

from __future__ import annotations

import asyncio
import time

from howdah import Howdah

app = Howdah()


@app.task
async def nap(seconds: float) -> None:
    """Ends when it is cancelled."""
    await asyncio.sleep(seconds)


@app.task
def block(seconds: float) -> None:
    """Cannot be cancelled: it holds a thread."""
    time.sleep(seconds)


@app.task
async def hog(seconds: float) -> None:
    """Holds the event loop."""
    time.sleep(seconds)


@app.task
async def refuse(seconds: float) -> None:
    """Will not be cancelled."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pass
