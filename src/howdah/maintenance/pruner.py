"""Deletes data past its retention, by whole partitions where possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import asyncpg
import msgspec

from howdah import telemetry
from howdah.audit import actor
from howdah.handler import Handler, PlatformHandler
from howdah.job import PLATFORM_PREFIX
from howdah.option_types import Duration
from howdah.options import check, option
from howdah.postgres import sql
from howdah.postgres.database import Database
from howdah.version import __version__

PRUNE = f"{PLATFORM_PREFIX}prune"


def prune(database: Callable[[], Database], retention: Callable[[], Retention]) -> Handler:
    """The handler of ``howdah:prune``; it returns the deleted numbers."""

    async def prune(*, done: float | None = None, failed: float | None = None) -> dict[str, int]:
        usual = retention()
        keep = replace(
            usual, done=usual.done if done is None else done, failed=usual.failed if failed is None else failed
        )
        pruned = await Pruner(database(), keep).prune()
        return {"partitions": pruned.partitions, "jobs": pruned.jobs}

    return PlatformHandler(PRUNE, prune)


DAY = 86400.0
BATCH = 10_000
FEW_QUEUES = 100
"""Queues whose names are kept, also when they are not used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention of finished jobs and their records, in seconds."""

    SECTION: ClassVar[str] = "retention"

    done: float = option(14 * DAY, Duration(least=0), "How long done jobs are kept.", "--done-after")
    failed: float = option(
        30 * DAY,
        Duration(least=0),
        "How long failed and cancelled jobs, and the records of runs, are kept.",
        "--failed-after",
    )
    logs: float = option(7 * DAY, Duration(least=0), "How long the log lines of jobs are kept.")
    audit: float = option(365 * DAY, Duration(least=7 * DAY), "How long the audit trail is kept.")

    def __post_init__(self) -> None:
        check(self)


DEFAULT_RETENTION = Retention()
"""The retention of an app that sets none; a control plane recognises it by identity, and keeps jobs for a week."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a prune. ``held_by``: a transaction that kept partitions from being dropped."""

    partitions: int
    jobs: int
    held_by: str | None = None


class Pruner:
    """Deletes data past its retention in small steps. Safe on every node at once; one at a time drops partitions.

    ``audited``: record what is deleted in the audit log, in the transaction of the deletion; for the command.
    """

    def __init__(self, database: Database, retention: Retention, *, audited: bool = False) -> None:
        self._database = database
        self._retention = retention
        self._audited = audited
        self._sql = sql.load("howdah.maintenance", schema=database.schema)

    async def prune(self) -> Pruned:
        """Drop and delete until nothing is past its retention."""
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
            limits = (self._retention.logs, self._retention.failed, BATCH)
            while await conn.fetchval(self._sql["prune_logs"], *limits, timeout=120) == BATCH:
                pass
            while await conn.fetchval(self._sql["prune_audit"], self._retention.audit, BATCH, timeout=120) == BATCH:
                pass
            while await conn.fetchval(self._sql["prune_lanes"], FEW_QUEUES, BATCH, __version__, timeout=120) == BATCH:
                pass
            while await conn.fetchval(self._sql["prune_tally"], BATCH, timeout=120) == BATCH:
                pass
            held_by = await conn.fetchval(self._sql["prune_blocked"])
        finally:
            conn.terminate()
        if partitions or jobs:
            telemetry.emit("prune.done", partitions=partitions, jobs=jobs)
        return Pruned(partitions, jobs, held_by)

    def _by(self) -> tuple[str | None, ...]:
        """Return the actor and the request for the audit; none when a node prunes by itself."""
        if not self._audited:
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
            return None  # another node is at it
