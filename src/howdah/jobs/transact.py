"""Transactional handlers of the job queue: their success is recorded in their own transaction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncpg

from howdah.errors import LeaseLost
from howdah.job import Job
from howdah.jobs.ack import array
from howdah.outcome import Ack
from howdah.postgres.sql import dollar_quoted, render
from howdah.postgres.transaction import transact_uncharged
from howdah.store import Transaction

NUMBERS = "(%d, %d, %d, %d, %d)"
WITH_RESULT = "(%d, %d, %d, %d, %d, %s)"


class TransactionalAck:
    """Runs the transactional handlers of one node; their success is recorded in their own transaction."""

    def __init__(self, schema: str, sql: Mapping[str, str], pool: asyncpg.Pool, node: int, idle: float) -> None:
        self._sql = sql
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

    async def run_batch(self, body: Callable[[Transaction], Awaitable[Sequence[Ack]]]) -> Sequence[Ack]:
        """Run ``body`` and record the successes that it returns in one transaction; return those whose lease is lost.

        If there are any, everything is rolled back and no success is recorded.
        """
        lost: list[Ack] = []

        async def finish(conn: Any, acks: Sequence[Ack]) -> None:
            nonlocal lost
            lost = await self._record(conn, acks)
            if lost:
                raise LeaseLost(f"the leases of {len(lost)} jobs of a batch are lost; its writes are rolled back")

        try:
            await transact_uncharged(self._pool, self._idle, body, finish)
        except LeaseLost:
            if not lost:
                raise  # raised by the handler itself, about another lease
        return lost

    async def _record(self, conn: Any, acks: Sequence[Ack]) -> list[Ack]:
        """Record successes; return those whose lease is lost."""
        tokens = Counter([ack.job.token for ack in acks])
        keyed = [ack.job for ack in acks if ack.job.key is not None]
        results = [None if ack.result is None else ack.result.decode() for ack in acks]
        rows = await conn.fetch(
            self._sql["ack_batch"],
            self._node,
            list(tokens),
            list(tokens.values()),
            array([ack.job.id for ack in acks]),
            array([ack.job.attempt for ack in acks]),
            array([ack.took for ack in acks]),
            results if any(results) else [],
            [job.key for job in keyed],
            [job.id for job in keyed],
        )
        held = {row["token"] for row in rows}
        left: set[tuple[int, int]] = set()
        if len(held) == len(tokens):
            left = {(row["token"], row["id"]) for row in await conn.fetch(self._sql["left_jobs"], list(tokens))}
        return [ack for ack in acks if ack.job.token not in held or (ack.job.token, ack.job.id) in left]
