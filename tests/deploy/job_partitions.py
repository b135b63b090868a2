"""Partitions of the job table, and whether maintenance created new ones."""

from __future__ import annotations

from typing import Any

PARTS = (
    "select relname from pg_class c join pg_inherits i on i.inhrelid = c.oid where inhparent = 'howdah.job'::regclass"
)
FAR = 30_000_000
"""An id for which there is no partition, and before which all are closed."""


async def partitions(conn: Any) -> set[int]:
    """Where the partitions begin, besides the default one."""
    return {int(row[0].split("_")[1]) for row in await conn.fetch(PARTS) if row[0] != "job_default"}


async def grew(conn: Any) -> bool:
    return any(first > FAR for first in await partitions(conn))
