"""Workbench and sessions: a system on a fresh database, with a client that enqueues and workers to measure."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from howdah.postgres import sql
from howdah.postgres.database import Database
from howdah_lab.bench.bench_schema import BenchSchema, CheckFailed, check_tables
from howdah_lab.bench.driver import Driver
from howdah_lab.bench.server import EmbeddedServer, GivenDatabase, Redis
from howdah_lab.bench.system import OURS, System

POLL = 0.004
"""Seconds between two queries for the number of started handlers."""
POLL_TABLES = 0.002
"""Seconds between two queries for unfinished jobs, once all handlers have started."""
NO_PROGRESS = 60.0
"""Seconds without any progress after which a run fails."""
WARM_UP = 2000
"""Jobs before the measurement, at most: connections are opened, statements prepared, code compiled."""
QUERY_TIMEOUT = 300.0
"""Seconds; a history of millions of jobs is one statement."""
EFFECTIVE = ("insert", "transact", "batch")
"""Kinds of handlers that write."""
EFFECTS = "create table bench_effect (job text not null)"


@dataclass(slots=True)
class Workbench:
    """The servers of a benchmark, and the commands that start the drivers."""

    postgresql: EmbeddedServer | GivenDatabase
    redis: Redis
    schema: str
    """Of Howdah."""
    commands: dict[str, list[str]] = field(default_factory=dict)
    """Command of the driver of each system."""

    async def prepare(self, system: System) -> dict[str, Any]:
        """Create the tables of the system in a database that is copied for every run; return its versions."""
        if isinstance(self.postgresql, GivenDatabase):
            async with Driver(self.commands[system.name], self.environment(system, "")) as driver:
                return await driver.ask("hello")
        database = template(system)
        if system.server == "redis":
            await self.redis.start()
        else:
            await self.postgresql.make(database)
        async with Driver(self.commands[system.name], self.environment(system, database)) as driver:
            versions = await driver.ask("hello")
            await driver.ask("setup")
        if system.server != "redis":
            async with connected(self.postgresql.dsn(database)) as conn:
                ours = system.name == OURS
                await conn.execute(sql.load("howdah_lab.bench", schema=self.schema)["make_tables"] if ours else EFFECTS)
        return versions

    def environment(self, system: System, database: str) -> dict[str, str]:
        """Return the environment variables of a driver."""
        if system.server == "redis":
            return {"BENCH_REDIS": self.redis.socket}
        found = {"BENCH_DSN": self.postgresql.dsn(database), "BENCH_SCHEMA": self.schema}
        if isinstance(self.postgresql, GivenDatabase):  # a DSN can rely on variables such as PGPASSWORD
            found |= {name: value for name, value in os.environ.items() if name.startswith("PG")}
        return found

    @asynccontextmanager
    async def session(
        self, system: System, *, workers: int = 0, source: str | None = None, keep: str | None = None
    ) -> AsyncIterator[SystemSession]:
        """A client and warm workers, on a copy of the database ``source``; under the name ``keep`` it stays."""
        database = keep or f"bench {system.name}"
        async with AsyncExitStack() as stack:
            await self._make(stack, system, database, source, keep)
            start = self.commands[system.name], self.environment(system, database)
            client, *others = [await stack.enter_async_context(Driver(*start)) for _ in range(1 + workers)]
            conn = None
            if system.server != "redis":
                conn = await stack.enter_async_context(connected(self.postgresql.dsn(database)))
            await client.ask("open")
            session = SystemSession(self, system, database, client, others, conn)
            await session.work()
            yield session

    @asynccontextmanager
    async def own_schema(self) -> AsyncIterator[BenchSchema]:
        """An empty schema for a scenario that measures Howdah only."""
        if isinstance(self.postgresql, GivenDatabase):
            await self.postgresql.schema.fresh()
            yield self.postgresql.schema
            return
        name = "bench own"
        await self.postgresql.make(name)
        try:
            async with BenchSchema(Database(self.postgresql.dsn(name), schema=self.schema)) as schema:
                await schema.fresh()
                yield schema
        finally:
            await self.postgresql.drop(name)

    async def _make(
        self, stack: AsyncExitStack, system: System, database: str, source: str | None, keep: str | None
    ) -> None:
        if system.server == "redis":
            await self.redis.ask("FLUSHALL")
        elif isinstance(self.postgresql, GivenDatabase):
            assert source is None
            assert keep is None
            await self.postgresql.schema.fresh()
        else:
            if keep is None:
                stack.push_async_callback(self.postgresql.drop, database)
            await self.postgresql.make(database, source or template(system), large=source is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTiming:
    """Time and costs of one drain."""

    jobs: int
    seconds: float
    worker_cpu: float
    server_cpu: float | None
    """``None`` if the server is not on this machine."""
    wal: int
    """Bytes, those of the enqueue included."""

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    @property
    def cpu(self) -> float:
        """Seconds of CPU of workers and server."""
        return self.worker_cpu + (self.server_cpu or 0.0)


class SystemSession:
    """One system at work: fills, drains and probes its queue."""

    def __init__(
        self,
        workbench: Workbench,
        system: System,
        database: str,
        client: Driver,
        workers: Sequence[Driver],
        conn: asyncpg.Connection | None,
    ) -> None:
        self.system = system
        self.client = client
        self.workers = workers
        self.conn = conn
        self._testbed = workbench
        self._database = database
        self._finished = 0
        self._effects = 0

    async def work(self) -> None:
        """Start the workers, and warm them up."""
        await asyncio.gather(*(worker.ask("work") for worker in self.workers))
        if self.workers:
            kind = "nothing" if "nothing" in self.system.kinds else "plain"
            jobs = self.system.jobs(WARM_UP, kind, seconds=0.5)
            await self.fill(jobs, kind)
            await self.finish(jobs)

    async def enqueue(self, jobs: int, *words: object) -> float:
        """Let the client enqueue jobs; return the seconds it took."""
        before = await self.left()
        began = time.monotonic()
        await self.client.ask("enqueue", *words)
        seconds = time.monotonic() - began
        if not self.workers and (found := await self.left() - before) != jobs:
            raise CheckFailed(f"{found:,} jobs wait after {jobs:,} were enqueued")
        return seconds

    async def fill(self, jobs: int, kind: str, way: str = "bulk") -> float:
        """Let the client enqueue jobs; return the seconds it took, without those to create the arguments."""
        await self.client.ask("make", jobs)
        return await self.enqueue(jobs, way, kind)

    async def drain(self, jobs: int, kind: str, way: str = "bulk") -> DrainTiming:
        """Fill the queue while the workers are frozen, continue them, and time them until the last commit."""
        wal = await self._wal()
        for worker in self.workers:
            worker.freeze()
        await self.fill(jobs, kind, way)
        server_cpu, worker_cpu = self._server_cpu(), sum(worker.cpu for worker in self.workers)
        began = time.monotonic()
        for worker in self.workers:
            worker.thaw()
        await self.finish(jobs, kind)
        seconds = time.monotonic() - began
        after = self._server_cpu()
        return DrainTiming(
            jobs=jobs,
            seconds=seconds,
            server_cpu=None if server_cpu is None or after is None else after - server_cpu,
            worker_cpu=sum(worker.cpu for worker in self.workers) - worker_cpu,
            wal=await self._wal() - wal,
        )

    async def finish(self, jobs: int, kind: str = "") -> None:
        """Wait until so many more handlers have started, and no job is left unfinished."""
        wanted = self._finished + jobs
        before, deadline = -1, time.monotonic() + NO_PROGRESS
        while (ran := await self.started()) < wanted or await self.left():
            if ran > before:
                before, deadline = ran, time.monotonic() + NO_PROGRESS
            elif time.monotonic() > deadline:
                raise CheckFailed(f"{ran - self._finished:,} of {jobs:,} ran, and no other in {NO_PROGRESS:g} s")
            await asyncio.sleep(POLL if ran < wanted else POLL_TABLES)
        if ran != wanted:
            raise CheckFailed(f"{ran - self._finished:,} handlers started for {jobs:,} jobs")
        self._finished = wanted
        self._effects += jobs if kind in EFFECTIVE else 0

    async def started(self) -> int:
        """Return the number of handlers started in all workers."""
        return sum(answer["started"] for answer in await asyncio.gather(*(w.ask("count") for w in self.workers)))

    async def left(self) -> int:
        """Return the number of unfinished jobs."""
        return await self._count(self.system.left)

    async def check(self) -> None:
        """Raise unless the tables hold every job that ran, each done once, and nothing else."""
        if self.system.done and (done := await self._count(self.system.done)) != self._finished:
            raise CheckFailed(f"{done:,} jobs are recorded as done instead of {self._finished:,}")
        if self.system.name == OURS:
            assert self.conn is not None
            waiting = await self.left()
            schema = self._testbed.schema
            await check_tables(self.conn, schema, done=self._finished, waiting=waiting, effects=self._effects)
        elif self.conn and (effects := await self._count("select count(*) from bench_effect")) != self._effects:
            raise CheckFailed(f"{effects:,} effects instead of {self._effects:,}")

    async def delays(self) -> list[float]:
        """Return the delays of the probes since the last call."""
        answers = await asyncio.gather(*(worker.ask("delays") for worker in self.workers))
        return [delay for answer in answers for delay in answer["delays"]]

    async def size(self) -> int:
        """Return the bytes of the database on disk."""
        assert self.conn is not None
        return int(await self.conn.fetchval("select pg_database_size(current_database())"))

    @property
    def dsn(self) -> str:
        """DSN of the database."""
        return self._testbed.postgresql.dsn(self._database)

    async def _count(self, question: str) -> int:
        if self.conn is not None:
            return int(await self.conn.fetchval(question.replace("{schema}", sql.identifier(self._testbed.schema))))
        return sum([await self._testbed.redis.ask(command.strip()) for command in question.split(";")])

    async def _wal(self) -> int:
        """Return the bytes of WAL written so far."""
        return int(await self.conn.fetchval("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")) if self.conn else 0

    def _server_cpu(self) -> float | None:
        return self._testbed.postgresql.cpu if self.conn else self._testbed.redis.cpu


def template(system: System) -> str:
    """Return the name of the database that holds only the tables of a system."""
    return f"bench {system.name} template"


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to query with."""
    conn = await Database(dsn, command_timeout=QUERY_TIMEOUT).connect("bench")
    try:
        yield conn
    finally:
        await conn.close()
