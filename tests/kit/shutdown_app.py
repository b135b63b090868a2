"""An app whose nodes are stopped all the time: ``-a kit.shutdown_app:app``."""

from __future__ import annotations

import asyncio
import time

from howdah import Howdah, Transaction

app = Howdah()


@app.task(queue="quick")
async def quickly(n: int) -> None:
    """Waits for a moment."""
    await asyncio.sleep(0.02)


@app.task(queue="quick")
def in_thread(n: int) -> None:
    """The same in a thread."""
    time.sleep(0.02)


@app.task(queue="quick", transactional=True)
async def effect(tx: Transaction, n: int) -> None:
    """Leaves a mark in the commit of its completion."""
    await tx.execute("insert into mark values ($1)", n)
    await asyncio.sleep(0.02)


@app.task(queue="endless")
async def never() -> None:
    """Is never through."""
    await asyncio.sleep(3600)
