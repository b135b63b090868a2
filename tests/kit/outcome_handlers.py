"""Handlers that end as they are told to, one for each executor; and handlers that do not end when cancelled."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from howdah import Transaction, current_job
from kit.outcome_strategies import Ending, end

HANG = Ending("hang", "")
"""Does not end when it is cancelled."""
released = threading.Event()
"""Ends the handlers of this process that hang."""
WAIT = 600.0


async def _hang() -> None:
    last = time.monotonic() + WAIT
    while not released.is_set() and time.monotonic() < last:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue


async def on_loop(act: str, value: str) -> Any:
    """End so on the event loop."""
    return await _hang() if act == HANG.act else end(act, value)


def in_thread(act: str, value: str) -> Any:
    """End so in a thread."""
    return released.wait(WAIT) if act == HANG.act else end(act, value)


def in_process(act: str, value: str) -> Any:
    """End so in a process."""
    if act == HANG.act:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(WAIT)
    return end(act, value)


async def in_transaction(tx: Transaction, act: str, value: str) -> Any:
    """Write an effect, and end so with the transaction open."""
    await tx.execute("insert into effect (id) values ($1)", current_job().id)
    return await _hang() if act == HANG.act else end(act, value)


async def row(record: Mapping[str, Any]) -> Any:
    """End as the row says."""
    return await on_loop(record["act"], record["value"])


async def row_in_transaction(record: Mapping[str, Any], tx: Transaction) -> Any:
    """Write an effect, and end as the row says with the transaction open."""
    await tx.execute("insert into effect (id) values ($1)", record["id"])
    return await on_loop(record["act"], record["value"])
