"""Client: enqueue, in the caller's transaction or in one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import asyncpg

from howdah import telemetry
from howdah.errors import DatabaseUnreachable, KeyHeld
from howdah.jobs.bulk import Bulk
from howdah.jobs.foreign import Foreign
from howdah.jobs.new import Enqueued, NewJob
from howdah.jobs.together import Together
from howdah.pg import sql
from howdah.pg.borrow import is_native
from howdah.pg.database import Database
from howdah.pg.reach import Reach
from howdah.store import Transaction

PATIENCE = 5.0
"""Seconds an enqueue on a connection of its own waits for a key that another open transaction holds."""
BRIEFLY = "250ms"
"""How long a batch waits for such a key; then the job waits for it alone."""
HELD = "HW002"
"""SQLSTATE of ``take_keys`` for such a key."""


class Client:
    """Enqueues jobs. Calls made at the same time without a connection of their own travel together."""

    def __init__(self, database: Database, pool: Callable[[], Any], foreign: Foreign) -> None:
        self._database = database
        self._pool = pool
        self._foreign = foreign
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._bulk = Bulk(database.schema, self._sql)
        self._patience = f"{min(PATIENCE, database.command_timeout / 2) * 1000:.0f}ms"
        self._plain = Together(self._reach, self._send, self._one)
        self._with_key = Together(self._reach, self._send, lambda own, job: self._keyed(own, job, self._patience))
        """Jobs with a key travel apart: other jobs never wait for a key."""
        self._may_write = True
        """Whether the role may write the tables, as far as is known."""

    @property
    def idle(self) -> bool:
        """Whether no call without a connection of its own is under way."""
        return self._plain.idle and self._with_key.idle

    async def enqueue(self, job: NewJob, conn: Any = None) -> Enqueued:
        """Enqueue one job; with ``conn``, in that connection's transaction."""
        job.check()
        if conn is None:
            return await (self._plain if job.key is None else self._with_key).enqueue(job)
        if isinstance(conn, Transaction):
            async with conn.use() as native:
                return await self._one(native, job)
        if is_native(conn):
            return await self._one(conn, job)
        [made] = await self._foreign.enqueue([job], conn)
        return made

    async def enqueue_many(self, jobs: Iterable[NewJob], conn: Any = None) -> list[Enqueued]:
        """Enqueue all of them or none, by COPY; returns what became of each, in order."""
        if conn is None:
            async with self._reach() as own:
                return await self._many(own, jobs, self._patience)
        if isinstance(conn, Transaction):
            async with conn.use() as native:
                made = await self._bulk.enqueue(native, jobs)
        elif is_native(conn):
            made = await self._bulk.enqueue(conn, jobs)
        else:
            return await self._foreign.enqueue(list(jobs), conn)
        telemetry.emit("job.enqueue", jobs=sum(map(itemgetter(1), made)))
        return made

    async def _one(self, conn: Any, job: NewJob) -> Enqueued:
        return self._made(await conn.fetchrow(self._sql["enqueue"], *_facts(job)))

    async def _keyed(self, conn: Any, job: NewJob, patience: str) -> Enqueued:
        """Enqueue on a connection of our own; the wait for a key that an open transaction holds is bounded."""
        if job.key is None:
            return await self._one(conn, job)
        try:
            return self._made(await conn.fetchrow(self._sql["enqueue_keyed"], *_facts(job), patience))
        except asyncpg.LockNotAvailableError as error:
            if patience == BRIEFLY or "job_key" in str(error.context):
                raise KeyHeld(job.key) from error
            raise DatabaseUnreachable(f"waited {patience} for a lock on a table; nothing was enqueued") from error

    def _made(self, row: Any) -> Enqueued:
        telemetry.emit("job.enqueue", jobs=int(row["fresh"]))
        return Enqueued(row["id"], row["fresh"])

    async def _many(self, conn: Any, jobs: Iterable[NewJob], patience: str) -> list[Enqueued]:
        try:
            made = await self._bulk.enqueue(conn, jobs, patience)
        except asyncpg.PostgresError as error:
            if error.sqlstate == HELD:
                raise KeyHeld(str(error.detail)) from error
            raise
        telemetry.emit("job.enqueue", jobs=sum(map(itemgetter(1), made)))
        return made

    async def _send(self, conn: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if self._may_write:
            try:
                return await (self._many(conn, jobs, BRIEFLY) if len(jobs) > 1 else self._now(conn, *jobs))
            except asyncpg.InsufficientPrivilegeError:
                self._may_write = False  # a role that may only call the function
        if len(jobs) == 1:
            return [await self._keyed(conn, jobs[0], BRIEFLY)]
        async with conn.transaction():  # all or none: all are told the same
            return [await self._keyed(conn, job, BRIEFLY) for job in jobs]

    async def _now(self, conn: Any, job: NewJob) -> list[Enqueued]:
        if job.key is not None:
            return [await self._keyed(conn, job, BRIEFLY)]
        if job.run_at is not None or job.delay:
            return [await self._one(conn, job)]
        id = await conn.fetchval(
            self._sql["enqueue_now"],
            job.kind,
            job.payload.decode(),
            job.queue,
            job.priority,
            job.max_attempts,
            job.timeout,
            job.meta.decode() if job.meta else None,
            job.trace,
        )
        telemetry.emit("job.enqueue", jobs=1)
        return [Enqueued(id, True)]

    def _reach(self) -> Reach:
        return Reach(self._pool, self._database, "enqueueing")


def _facts(job: NewJob) -> tuple[Any, ...]:
    """The parameters of the statement ``enqueue``."""
    return (
        job.kind,
        job.payload.decode(),
        job.queue,
        job.priority,
        job.run_at,
        job.delay,
        job.max_attempts,
        job.timeout,
        job.key,
        job.meta.decode() if job.meta else None,
        job.trace,
    )
