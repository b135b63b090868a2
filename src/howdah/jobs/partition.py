"""Claims from one partition of ``job`` where there are many of them.

The plan of the general claim names every partition, and every execution locks and opens all of them. The jobs that wait
are mostly in one partition, so the claim that follows names only that one. It takes jobs in the same order, and stops
before the first run that is not in its partition; that one is left to the general claim.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import asyncpg

from howdah.postgres.database import Session
from howdah.postgres.sql import identifier

FEW = 16
"""Up to so many partitions of a table, the general claim is as good."""
READ_AGAIN = 30.0
"""Seconds after which the list of partitions is read again."""


class JobPartition(NamedTuple):
    """A partition of ``job``: the ids from ``lo`` up to, but not including, ``hi``."""

    lo: int
    hi: int

    def claim(self, statement: str, schema: str) -> str:
        """Return the claim for this partition.

        >>> JobPartition(5, 9).claim('select false as outside from "howdah".job b', "howdah")
        'select (r.lo < 5 or r.hi > 9) as outside from "howdah"."job_5_9" b'
        """
        name = identifier(schema)
        return statement.replace("false as outside", f"(r.lo < {self.lo} or r.hi > {self.hi}) as outside").replace(
            f"from {name}.job b", f"from {name}.{identifier(f'job_{self.lo}_{self.hi}')} b"
        )


class PartitionedClaim:
    """Runs the claim, on one partition while the jobs are in it."""

    def __init__(self, session: Session, sql: Mapping[str, str], schema: str) -> None:
        self._session = session
        self._sql = sql
        self._schema = schema
        self._partitions: list[JobPartition] = []
        self._read_at = -READ_AGAIN
        self._claimed: tuple[int, int] | None = None
        """The smallest and the largest id that the last general claim took."""
        self._current: JobPartition | None = None
        self._statement = ""
        """The claim for the current partition."""
        self.partial = False
        """True if the last claim was for one partition and found jobs: there may be more in others."""

    async def fetch(self, *args: Any) -> list[Any]:
        """Run the claim with these parameters; returns its rows."""
        if self._claimed is not None:  # not right after that claim: if it failed, the jobs would be lost
            await self._choose(*self._claimed)
        if self._current is not None:
            try:
                rows = await self._session.fetch(self._statement, *args)
            except asyncpg.UndefinedTableError:  # pruned; nothing was claimed
                self.forget()
                rows = []
            if rows:
                self.partial = True
                return rows
        self.partial = False
        rows = await self._session.fetch(self._sql["claim"], *args)
        if rows and (len(self._partitions) > FEW or time.monotonic() - self._read_at >= READ_AGAIN):
            ids = [row[0] for row in rows]
            self._claimed = min(ids), max(ids)
        return rows

    def forget(self) -> None:
        """Use the general claim until the partitions are known: they may be those of another server."""
        self._current, self._claimed, self._partitions, self._read_at = None, None, [], -READ_AGAIN

    async def _choose(self, low: int, high: int) -> None:
        """Choose the partition of these jobs for the next claims."""
        self._claimed = None
        now = time.monotonic()
        if now - self._read_at >= READ_AGAIN:
            found = await self._session.fetch(self._sql["partitions"])
            self._partitions, self._read_at = [JobPartition(*row) for row in found], now
        if len(self._partitions) <= FEW:
            self._current = None
            return
        for each in self._partitions:
            if each.lo <= low and high < each.hi and each != self._current:
                self._current, self._statement = each, each.claim(self._sql["claim"], self._schema)
