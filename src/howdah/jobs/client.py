"""Client: enqueue, in the caller's transaction or in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import asyncpg

from howdah import telemetry
from howdah.errors import ConfigError, DatabaseUnreachable
from howdah.jobs.bulk import CHUNK, Bulk
from howdah.jobs.new import Enqueued, NewJob
from howdah.pg import sql
from howdah.pg.database import BROKEN, Database, hide_password
from howdah.store import Transaction


class Borrowed(Protocol):
    """A connection of another library, through which one statement can be run."""

    is_async: bool

    def run(self, statement: str, params: Mapping[str, Any]) -> Any:
        """Run a statement with ``:name`` parameters; rows, or an awaitable of rows if ``is_async``."""
        ...


Borrow = Callable[[object], Borrowed | None]

FOREIGN = """
select id, fresh from {schema}.enqueue(
    kind => cast(:kind as text), args => cast(:args as json), queue => cast(:queue as text),
    priority => cast(:priority as int), run_at => cast(:run_at as timestamptz), delay => cast(:delay as float8),
    max_attempts => cast(:max_attempts as int), timeout => cast(:timeout as float8), key => cast(:key as text),
    meta => cast(:meta as json), trace => cast(:trace as text))
"""


class Client:
    """Enqueues jobs. Calls made at the same time without a connection of their own travel together."""

    def __init__(self, database: Database, pool: Callable[[], Any], borrow: Borrow) -> None:
        self._database = database
        self._pool = pool
        self._borrow = borrow
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._foreign = sql.render(FOREIGN, {"schema": database.schema})
        self._bulk = Bulk(database.schema, self._sql)
        self._waiting: list[tuple[NewJob, asyncio.Future[Enqueued]]] = []
        self._flush: asyncio.Task[None] | None = None

    async def enqueue(self, job: NewJob, conn: Any = None) -> Enqueued:
        """Enqueue one job; with ``conn``, in that connection's transaction."""
        job.check()
        if conn is None:
            return await self._together(job)
        native = _native(conn)
        if native is not None:
            return await self._one(native, job)
        borrowed = self._adapt(conn)
        if not borrowed.is_async:
            raise ConfigError(f"{type(conn).__name__} is synchronous; call enqueue_sync, or give an async connection")
        return _made(await borrowed.run(self._foreign, _params(job)))

    def enqueue_sync(self, job: NewJob, conn: Any) -> Enqueued:
        """Enqueue one job in the transaction of a synchronous connection."""
        job.check()
        borrowed = self._adapt(conn)
        if borrowed.is_async:
            raise ConfigError(f"{type(conn).__name__} is asynchronous; await enqueue(...) instead")
        return _made(borrowed.run(self._foreign, _params(job)))

    async def enqueue_many(self, jobs: Iterable[NewJob], conn: Any = None) -> list[Enqueued]:
        """Enqueue all of them or none, by COPY; returns what became of each, in order."""
        if conn is None:
            async with self._reach() as own:
                made = await self._bulk.enqueue(own, jobs)
        elif (native := _native(conn)) is not None:
            made = await self._bulk.enqueue(native, jobs)
        else:
            made = [await self.enqueue(job, conn) for job in jobs]
        telemetry.emit("job.enqueue", jobs=sum(each.fresh for each in made))
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
            batch, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
            try:
                if len(batch) == 1:
                    async with self._reach() as conn:
                        made = [await self._one(conn, batch[0][0])]
                else:
                    made = await self.enqueue_many(job for job, _ in batch)
            except BaseException as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error if isinstance(error, Exception) else DatabaseUnreachable("stopped"))
                if not isinstance(error, Exception):
                    raise
                continue
            for (_, future), each in zip(batch, made, strict=True):
                if not future.done():
                    future.set_result(each)

    def _reach(self) -> _Reach:
        return _Reach(self._pool, self._database)

    def _adapt(self, conn: Any) -> Borrowed:
        borrowed = self._borrow(conn)
        if borrowed is None:
            raise ConfigError(
                f"cannot enqueue through a {type(conn).__module__}.{type(conn).__name__}; give an asyncpg, psycopg,"
                " SQLAlchemy or Django connection, or call the SQL function enqueue yourself"
            )
        return borrowed


class _Reach:
    """A pooled connection whose failures are named for what they are."""

    def __init__(self, pool: Callable[[], Any], database: Database) -> None:
        self._open = pool
        self._database = database
        self._holder: Any = None

    async def __aenter__(self) -> Any:
        try:
            self._holder = (await self._open()).acquire()
            return await self._holder.__aenter__()
        except BROKEN as error:
            raise DatabaseUnreachable(f"cannot reach {hide_password(self._database.dsn)}: {error}") from error

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self._holder.__aexit__(kind, error, trace)
        if isinstance(error, BROKEN):
            raise DatabaseUnreachable(
                f"lost {hide_password(self._database.dsn)} while enqueueing, it may or may not have happened: {error}"
            ) from error


def _native(conn: Any) -> Any:
    if isinstance(conn, Transaction):
        return conn.connection
    return conn if isinstance(conn, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy) else None


def _params(job: NewJob) -> dict[str, Any]:
    return {
        "kind": job.kind,
        "args": job.payload.decode(),
        "queue": job.queue,
        "priority": job.priority,
        "run_at": job.run_at,
        "delay": job.delay,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "key": job.key,
        "meta": job.meta.decode() if job.meta else None,
        "trace": job.trace,
    }


def _made(rows: Any) -> Enqueued:
    id, fresh = rows[0]
    telemetry.emit("job.enqueue", jobs=int(fresh))
    return Enqueued(int(id), bool(fresh))
