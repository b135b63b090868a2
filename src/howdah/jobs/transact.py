"""Transact: the success of a job as the last statement of its handler's own transaction."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from howdah.errors import LeaseLost
from howdah.job import Job
from howdah.pg.interrupt import transact_uncharged
from howdah.pg.sql import render
from howdah.store import Transaction

NUMBERS = "(%d, %d, %d, %d, %d)"
PARAMETERS = "($1, $2, $3, $4, $5, $6)"


class Transact:
    """Runs the transactional handlers of one node."""

    def __init__(self, schema: str, pool: asyncpg.Pool, node: int, idle: float) -> None:
        self._pool = pool
        self._node = node
        self._idle = idle
        self._ack = render("select {schema}.ack_in_transaction", {"schema": schema})
        self._ack_keyless = render("select {schema}.ack_keyless", {"schema": schema})

    async def run(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        """Run ``body`` and record success in one transaction; raises :class:`LeaseLost` if the job is not ours."""
        started = 0
        ack = self._ack if job.key else self._ack_keyless

        async def begin(tx: Transaction) -> bytes | None:
            nonlocal started
            started = time.perf_counter_ns()  # to wait for a connection is not work
            return await body(tx)

        async def finish(conn: Any, result: bytes | None) -> str | None:
            said = (self._node, job.token, job.id, job.attempt, (time.perf_counter_ns() - started) // 1000)
            if result is None:  # numbers alone need no parameters, so that it can travel with the commit
                return ack + NUMBERS % said
            await conn.execute(ack + PARAMETERS, *said, result)
            return None

        try:
            await transact_uncharged(self._pool, self._idle, begin, finish)
        except asyncpg.PostgresError as error:
            if error.sqlstate == "HW001":
                raise LeaseLost(f"the lease of job {job.id} is lost; everything it wrote is rolled back") from None
            raise
