"""Transactional handlers of the job queue: their success is recorded in their own transaction."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from howdah.errors import LeaseLost
from howdah.job import Job
from howdah.postgres.sql import dollar_quoted, render
from howdah.postgres.transaction import transact_uncharged
from howdah.store import Transaction

NUMBERS = "(%d, %d, %d, %d, %d)"
WITH_RESULT = "(%d, %d, %d, %d, %d, %s)"


class TransactionalAck:
    """Runs the transactional handlers of one node; their success is recorded in their own transaction."""

    def __init__(self, schema: str, pool: asyncpg.Pool, node: int, idle: float) -> None:
        self._pool = pool
        self._node = node
        self._idle = idle
        self._ack = render("select {schema}.ack_in_transaction", {"schema": schema})
        self._ack_keyless = render("select {schema}.ack_keyless", {"schema": schema})

    async def run(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        """Run ``body`` and record success in one transaction; raise :class:`LeaseLost` if the lease is lost."""
        started = 0
        ack = self._ack if job.key else self._ack_keyless

        async def begin(tx: Transaction) -> bytes | None:
            nonlocal started
            started = time.perf_counter_ns()  # the wait for a connection is not handler time
            return await body(tx)

        async def finish(_: Any, result: bytes | None) -> str:
            values = (self._node, job.token, job.id, job.attempt, (time.perf_counter_ns() - started) // 1000)
            # without parameters, so that the ack is sent together with COMMIT
            if result is None:
                return ack + NUMBERS % values
            return ack + WITH_RESULT % (*values, dollar_quoted(result.decode()))

        try:
            await transact_uncharged(self._pool, self._idle, begin, finish)
        except asyncpg.PostgresError as error:
            if error.sqlstate == "HW001":
                raise LeaseLost(f"the lease of job {job.id} is lost; everything it wrote is rolled back") from None
            raise
