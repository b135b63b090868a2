"""Pruner: what is past its time goes, whole partitions where possible."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import msgspec

from howdah import telemetry
from howdah.audit.by import actor
from howdah.errors import ConfigError
from howdah.pg import sql
from howdah.pg.database import Database

DAY = 86400.0
BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long finished jobs are kept, in seconds."""

    done: float = 14 * DAY
    failed: float = 30 * DAY
    """Failed and cancelled ones, and the records of runs."""

    logs: float = 7 * DAY
    """What jobs said, line by line."""

    audit: float = 365 * DAY
    """Who did what; at least a week."""

    def __post_init__(self) -> None:
        if not self.audit >= 7 * DAY:
            raise ConfigError(f"retention of audit must be at least 604800 seconds, a week, got {self.audit!r}")
        for name in ("done", "failed", "logs"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"retention of {name} must not be negative, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a prune did."""

    partitions: int
    jobs: int


class Pruner:
    """Drops what is past its time, a little at a time. Safe on every node at once.

    ``noted``: for a person who prunes; what is deleted is written to the audit with the deletion itself.
    """

    def __init__(self, database: Database, retention: Retention, *, noted: bool = False) -> None:
        self._database = database
        self._retention = retention
        self._noted = noted
        self._sql = sql.load("howdah.upkeep", schema=database.schema)

    async def prune(self) -> Pruned:
        """Drop and delete until nothing is past its time."""
        partitions = jobs = 0
        keep, by = (self._retention.done, self._retention.failed), self._by()
        conn = await self._database.connect("prune")
        try:
            while (dropped := await self._drop_one(conn, keep, by)) is not None:
                partitions += 1
                jobs += dropped
            while deleted := await conn.fetchval(self._sql["prune_rows"], *keep, BATCH, *by, timeout=120):
                jobs += deleted
                if deleted < BATCH:
                    break
            said = (self._retention.logs, self._retention.failed, BATCH)
            while await conn.fetchval(self._sql["prune_said"], *said, timeout=120) == BATCH:
                pass
            while await conn.fetchval(self._sql["prune_audit"], self._retention.audit, BATCH, timeout=120) == BATCH:
                pass
        finally:
            conn.terminate()
        if partitions or jobs:
            telemetry.emit("prune.done", partitions=partitions, jobs=jobs)
        return Pruned(partitions, jobs)

    def _by(self) -> tuple[str | None, ...]:
        """Who prunes, and what they asked for; nobody when a node does it by itself."""
        if not self._noted:
            return (None, None, None, None)
        by, kept = actor(), {"done": self._retention.done, "failed": self._retention.failed}
        return by.who, by.via, by.address, msgspec.json.encode({"kept": kept}).decode()

    async def _drop_one(
        self, conn: asyncpg.Connection, keep: tuple[float, float], by: tuple[str | None, ...]
    ) -> int | None:
        try:
            dropped = await conn.fetchval(self._sql["prune_partition"], *keep, *by, timeout=300)
            return None if dropped is None else int(dropped)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError, asyncpg.UndefinedTableError):
            return None  # the last: another node dropped the partition while this one waited for its lock
