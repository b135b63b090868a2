"""A user's table that rejects updates of some of its rows, and the expected state of each row."""

from __future__ import annotations

import asyncio
import os

import msgspec

from howdah_lab.torture.app import app, write

REFUSALS = "HOWDAH_TORTURE_REFUSALS"
"""The environment variable that makes nodes work on this table."""
STALLED_AFTER = 4.0
STATES = {
    "": "completed",
    "claim": "queued",
    "end": "failed",
    "dropped": "failed",
    "alone": "completed",
    "beat": "completed",
    "never": "processing",
}
"""The ways in which rows are refused (see sql/open.sql), and the state in which each is in the end."""
HELD_UP = ("claim", "never")
"""Rows that cannot end."""


class Harmed(msgspec.Struct, frozen=True):
    """Columns of a row that the handler receives."""

    mark: int
    pause: float


async def work_on(row: Harmed) -> None:
    """Take some time. What a row comes to is its state."""
    write("start", "refusing", row.mark)
    await asyncio.sleep(row.pause)
    write("end", "refusing", row.mark)


def open_to(run_schema: str) -> None:
    """Work on the table of this schema."""
    if REFUSALS in os.environ:
        table = app.table(
            f"{run_schema}.refusing",
            name="refusing",
            record=Harmed,
            order_by=["id"],
            max_attempts=3,
            max_resets=3,
            retry_after=0.5,
            stalled_after=STALLED_AFTER,
            poll=0.5,
        )
        table.handler(work_on)
