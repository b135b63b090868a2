"""Client: enqueue, in the caller's transaction or in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import asyncpg

from howdah import telemetry
from howdah.errors import DatabaseUnreachable
from howdah.jobs.bulk import CHUNK, Bulk
from howdah.jobs.foreign import Foreign
from howdah.jobs.new import Enqueued, NewJob
from howdah.pg import sql
from howdah.pg.borrow import is_native
from howdah.pg.database import Database
from howdah.pg.reach import Reach
from howdah.store import Transaction


class Client:
    """Enqueues jobs. Calls made at the same time without a connection of their own travel together."""

    def __init__(self, database: Database, pool: Callable[[], Any], foreign: Foreign) -> None:
        self._database = database
        self._pool = pool
        self._foreign = foreign
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._bulk = Bulk(database.schema, self._sql)
        self._waiting: list[tuple[NewJob, asyncio.Future[Enqueued]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._may_write = True
        """Whether the role may write the tables, as far as is known."""

    @property
    def idle(self) -> bool:
        """Whether no call without a connection of its own is under way."""
        return not self._waiting and (self._flush is None or self._flush.done())

    async def enqueue(self, job: NewJob, conn: Any = None) -> Enqueued:
        """Enqueue one job; with ``conn``, in that connection's transaction."""
        job.check()
        if conn is None:
            return await self._together(job)
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
                made = await self._bulk.enqueue(own, jobs)
        elif isinstance(conn, Transaction):
            async with conn.use() as native:
                made = await self._bulk.enqueue(native, jobs)
        elif is_native(conn):
            made = await self._bulk.enqueue(conn, jobs)
        else:
            return await self._foreign.enqueue(list(jobs), conn)
        telemetry.emit("job.enqueue", jobs=sum(map(itemgetter(1), made)))
        return made

    async def _one(self, conn: Any, job: NewJob) -> Enqueued:
        row = await conn.fetchrow(
            self._sql["enqueue"],
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
        telemetry.emit("job.enqueue", jobs=int(row["fresh"]))
        return Enqueued(row["id"], row["fresh"])

    async def _together(self, job: NewJob) -> Enqueued:
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._send_waiting(), name="howdah enqueue")
        return await future

    async def _send_waiting(self) -> None:
        """Send what has gathered; while it is on its way the next lot gathers."""
        while self._waiting:
            batch: list[tuple[NewJob, asyncio.Future[Enqueued]]] = []
            try:
                async with self._reach() as conn:
                    while self._waiting:
                        batch, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
                        made = await self._send(conn, [job for job, _ in batch])
                        for (_, future), each in zip(batch, made, strict=True):
                            if not future.done():
                                future.set_result(each)
                        await asyncio.sleep(0)  # who waited for this may have another one, for the same connection
            except BaseException as error:
                if not batch:  # there was no connection
                    batch, self._waiting = self._waiting, []
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error if isinstance(error, Exception) else DatabaseUnreachable("stopped"))
                if not isinstance(error, Exception):
                    raise

    async def _send(self, conn: Any, jobs: list[NewJob]) -> list[Enqueued]:
        if self._may_write:
            try:
                return await (self.enqueue_many(jobs, conn) if len(jobs) > 1 else self._now(conn, *jobs))
            except asyncpg.InsufficientPrivilegeError:
                self._may_write = False  # a role that may only call the function
        if len(jobs) == 1:
            return [await self._one(conn, *jobs)]
        async with conn.transaction():  # all or none: all are told the same
            return [await self._one(conn, job) for job in jobs]

    async def _now(self, conn: Any, job: NewJob) -> list[Enqueued]:
        if job.key is not None or job.run_at is not None or job.delay:
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
