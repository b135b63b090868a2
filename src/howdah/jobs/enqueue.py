"""Enqueues jobs, in the caller's transaction (asyncpg or another library) or in one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import asyncpg
import msgspec

from howdah import telemetry
from howdah.contrib import Steps, WrapConnection, foreign_connection, is_native, run_steps, run_steps_sync
from howdah.errors import DatabaseUnreachable, KeyHeld
from howdah.job import PLATFORM_PREFIX, Enqueued, NewJob
from howdah.jobs.bulk import BulkEnqueue, size_of
from howdah.jobs.coalesce import Coalescer
from howdah.postgres import sql
from howdah.postgres.database import Acquired, Database
from howdah.postgres.sql import render
from howdah.store import Transaction

STATEMENT = """
select made.id, made.fresh
from rows from (json_to_recordset(cast(:jobs as json)) as (
        kind text, args json, queue text, priority int, run_at timestamptz, delay float8, max_attempts int,
        timeout float8, key text, meta json, trace text)) with ordinality
    as job(kind, args, queue, priority, run_at, delay, max_attempts, timeout, key, meta, trace, place)
cross join lateral {schema}.enqueue(
    job.kind, job.args, job.queue, job.priority, job.run_at, job.delay, job.max_attempts,
    job.timeout, job.key, job.meta, job.trace) made
order by job.place
"""


PART_BYTES = 4_000_000
"""Bytes of arguments and metadata that one statement enqueues through a connection of another library."""
MARK = "select set_config('howdah.bulk', 'on', true)"
IS_MARKED = "select current_setting('howdah.bulk', true) = 'on'"
"""True while ``MARK`` is in force: in autocommit it ends with the transaction of its own statement."""


class ForeignEnqueue:
    """Enqueues through a connection of another library by the SQL function; one statement for any number of jobs.

    Large arguments are divided among several statements: in the caller's transaction or, in autocommit, in one of their
    own, so that all jobs are enqueued or none.
    """

    def __init__(self, schema: str, wrap: WrapConnection) -> None:
        self._statement = render(STATEMENT, {"schema": schema})
        self._wrap = wrap

    async def enqueue(self, jobs: Sequence[NewJob], conn: object) -> list[Enqueued]:
        """Enqueue through an asynchronous connection."""
        through = foreign_connection(self._wrap, conn, is_async=True, verb="enqueue")
        return _made(await run_steps(through, self._steps(jobs)))

    def enqueue_sync(self, jobs: Sequence[NewJob], conn: object) -> list[Enqueued]:
        """Enqueue through a synchronous connection."""
        through = foreign_connection(self._wrap, conn, is_async=False, verb="enqueue")
        return _made(run_steps_sync(through, self._steps(jobs)))

    def _steps(self, jobs: Sequence[NewJob]) -> Steps:
        for job in jobs:
            job.check()  # before the first statement: a caller may catch the error and commit
        made: list[Any] = []
        parts = _parts(jobs)
        if len(parts) == 1:
            made += yield self._statement, _params(parts[0])
            return made
        yield MARK, {}
        [[in_transaction]] = yield IS_MARKED, {}
        if not in_transaction:
            yield "begin", {}
        try:
            for part in parts:
                made += yield self._statement, _params(part)
        except BaseException:
            if not in_transaction:
                with suppress(Exception):  # the connection is lost, and its transaction with it
                    yield "rollback", {}
            raise
        if not in_transaction:
            yield "commit", {}
        return made


def _parts(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Divide jobs by the size of their arguments; most of the time they are one part."""
    if size_of(jobs) <= PART_BYTES:
        return [jobs]
    sizes = [size_of([job]) for job in jobs]
    parts: list[Sequence[NewJob]] = []
    start = size = 0
    for place, more in enumerate(sizes):
        if place > start and size + more > PART_BYTES:
            parts.append(jobs[start:place])
            start, size = place, 0
        size += more
    return [*parts, jobs[start:]]


def _params(jobs: Sequence[NewJob]) -> dict[str, Any]:
    rows = [
        {
            **{name: getattr(job, name) for name in _PLAIN},
            "args": msgspec.Raw(job.payload),
            "meta": msgspec.Raw(job.meta) if job.meta else None,
        }
        for job in jobs
    ]
    return {"jobs": msgspec.json.encode(rows).decode()}


_PLAIN = ("kind", "queue", "priority", "run_at", "delay", "max_attempts", "timeout", "key", "trace")


def _made(rows: Any) -> list[Enqueued]:
    made = [Enqueued(int(id), bool(fresh)) for id, fresh in rows]
    telemetry.emit("job.enqueue", jobs=sum(each.fresh for each in made))
    return made


KEY_WAIT = 5.0
"""Seconds an enqueue on a connection of its own waits for a key that another open transaction holds."""
FIRST_KEY_WAIT, NEXT_KEY_WAIT = "250ms", "1ms"
"""``lock_timeout`` of a batch for the first such key and for the next ones; then the job waits for its key alone."""
HELD = "HW002"
"""SQLSTATE of ``take_keys`` for such a key."""


class EnqueueClient:
    """Enqueues jobs. Concurrent calls without a connection of their own are sent as one batch."""

    def __init__(self, database: Database, pool: Callable[[], Any], foreign: ForeignEnqueue) -> None:
        self._database = database
        self._pool = pool
        self._foreign = foreign
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._bulk = BulkEnqueue(database.schema, self._sql)
        key_wait = min(KEY_WAIT, database.command_timeout / 2)
        self._lock_timeout = _milliseconds(key_wait)
        self._plain = Coalescer(self._reach, self._send, self._wait, key_wait=key_wait)
        self._with_key = Coalescer(self._reach, self._send, self._wait, key_wait=key_wait)
        """Jobs with a key are batched separately, so that other jobs never wait for a key."""
        self._may_write = True
        """True if the role may write the tables; false after the first privilege error."""

    @property
    def idle(self) -> bool:
        """True if no call without a connection of its own is in progress."""
        return self._plain.idle and self._with_key.idle

    async def enqueue(self, job: NewJob, conn: Any = None) -> Enqueued:
        """Enqueue one job; with ``conn``, in that connection's transaction."""
        job.check()
        if job.kind.startswith(PLATFORM_PREFIX):  # the SQL function rejects them; a bulk writes the tables
            return (await self.enqueue_many([job], conn))[0]
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
        """Enqueue all jobs or none, by COPY; return the results in order."""
        if conn is None:
            async with self._reach() as own:
                return await self._many(own, jobs, self._lock_timeout)
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

    async def _keyed(self, conn: Any, job: NewJob, lock_timeout: str) -> Enqueued:
        """Enqueue on a connection of our own, with a bounded wait for a key held by an open transaction."""
        if job.key is None:
            return await self._one(conn, job)
        try:
            return self._made(await conn.fetchrow(self._sql["enqueue_keyed"], *_facts(job), lock_timeout))
        except asyncpg.LockNotAvailableError as error:
            if lock_timeout in (FIRST_KEY_WAIT, NEXT_KEY_WAIT) or "job_key" in str(error.context):
                raise KeyHeld(job.key) from error
            raise DatabaseUnreachable(f"waited {lock_timeout} for a lock on a table; nothing was enqueued") from error

    def _made(self, row: Any) -> Enqueued:
        telemetry.emit("job.enqueue", jobs=int(row["fresh"]))
        return Enqueued(row["id"], row["fresh"])

    async def _many(self, conn: Any, jobs: Iterable[NewJob], lock_timeout: str) -> list[Enqueued]:
        try:
            made = await self._bulk.enqueue(conn, jobs, lock_timeout)
        except asyncpg.PostgresError as error:
            if error.sqlstate == HELD:
                raise KeyHeld(str(error.detail)) from error
            raise
        telemetry.emit("job.enqueue", jobs=sum(map(itemgetter(1), made)))
        return made

    async def _wait(self, conn: Any, job: NewJob, seconds: float) -> Enqueued:
        return await self._keyed(conn, job, _milliseconds(seconds))

    async def _send(self, conn: Any, jobs: Sequence[NewJob], hurry: bool) -> list[Enqueued]:
        lock_timeout = NEXT_KEY_WAIT if hurry else FIRST_KEY_WAIT
        if self._may_write:
            try:
                return await (
                    self._many(conn, jobs, lock_timeout) if len(jobs) > 1 else self._now(conn, jobs[0], lock_timeout)
                )
            except asyncpg.InsufficientPrivilegeError:
                self._may_write = False  # the role may only call the function
        if len(jobs) == 1:
            return [await self._keyed(conn, jobs[0], lock_timeout)]
        async with conn.transaction():  # all or none: every call gets the same result
            return [await self._keyed(conn, job, lock_timeout) for job in jobs]

    async def _now(self, conn: Any, job: NewJob, lock_timeout: str) -> list[Enqueued]:
        if job.key is not None:
            return [await self._keyed(conn, job, lock_timeout)]
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

    def _reach(self) -> Acquired:
        return Acquired(self._pool, self._database, "enqueueing")


def _milliseconds(seconds: float) -> str:
    """Return seconds as a ``lock_timeout``.

    >>> _milliseconds(0.25)
    '250ms'
    """
    return f"{seconds * 1000:.0f}ms"


def _facts(job: NewJob) -> tuple[Any, ...]:
    """Return the parameters of the statement ``enqueue``."""
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
