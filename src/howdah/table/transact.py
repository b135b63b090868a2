"""Transactional handlers of a table: the state ``completed`` is written in their own transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from howdah.errors import LeaseLost, Poison
from howdah.job import Job
from howdah.outcome import Ack
from howdah.postgres.transaction import transact_uncharged
from howdah.store import Transaction
from howdah.table.execution_log import ExecutionLogs
from howdah.table.plan import TablePlan
from howdah.table.rejected import Dropped

IDLE = 1.0
"""Number of leases after which the server ends an idle transaction, as when its process is frozen."""


class RowTransactions:
    """Runs the transactional handlers of one table."""

    def __init__(self, plan: TablePlan, pool: asyncpg.Pool, execution_logs: ExecutionLogs) -> None:
        self._plan = plan
        self._pool = pool
        self._execution_logs = execution_logs
        self._idle = IDLE * plan.options.stalled_after

    async def run(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        """Run ``body`` and record success in one transaction; raise :class:`LeaseLost` if the row is lost."""

        async def finish(conn: Any, _result: bytes | None) -> None:
            for (token, id), entries in self._execution_logs.pending([(job.token, job.id)]):
                await conn.fetch(self._plan.sql["log_in_transaction"], [id], [token], [entries])
            if await conn.fetchval(self._plan.sql["ack_in_transaction"], job.id, job.token) is None:
                await self._refuse_dropped(conn, job)
                raise LeaseLost(f"row {job.id} of table {self._plan.options.name} is lost; its writes are rolled back")

        await transact_uncharged(self._pool, self._idle, body, finish)

    async def run_batch(self, body: Callable[[Transaction], Awaitable[Sequence[Ack]]]) -> Sequence[Ack]:
        """Run ``body`` and record the successes that it returns in one transaction; return those whose row is lost.

        If there are any, everything is rolled back and no success is recorded.
        """
        lost: list[Ack] = []

        async def finish(conn: Any, acks: Sequence[Ack]) -> None:
            nonlocal lost
            tokens = list({ack.job.token for ack in acks})
            rows = await conn.fetch(self._plan.sql["ack_batch"], [ack.job.id for ack in acks], tokens)
            recorded = {(row["token"], self._plan.id(row["id"])) for row in rows}
            lost = [ack for ack in acks if (ack.job.token, ack.job.id) not in recorded]
            for ack in lost:
                await self._refuse_dropped(conn, ack.job)
            if lost:
                raise LeaseLost(f"{len(lost)} rows of a batch are lost; all of its writes are rolled back")

        try:
            await transact_uncharged(self._pool, self._idle, body, finish)
        except LeaseLost:
            if not lost:
                raise  # raised by the handler itself, about another lease
        return lost

    async def _refuse_dropped(self, conn: Any, job: Job) -> None:
        """Raise if the row is still held: then a trigger dropped the update."""
        if await conn.fetchval(self._plan.sql["held"], job.id, job.token) is not None:
            raise Poison(str(Dropped()))
