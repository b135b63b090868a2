"""Session: one rival on a fresh database, with a client that enqueues and workers that are frozen while it fills."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.driver import Driver
from howdah_lab.bench.server import PostgreSQL, Redis
from howdah_lab.bench.system import System

LOOK_EVERY = 0.004
"""Seconds between two looks at how many handlers have started."""
LOOK_CLOSER = 0.002
"""Seconds between two looks at the tables, once all have."""
PATIENCE = 60.0
"""Seconds without any progress."""
WARM_UP = 2000
"""Jobs at most before the first that count: connections are open, statements prepared and code is compiled."""
EFFECTIVE = ("insert", "transact")
"""Kinds of handlers that write."""
PREPARE = "create table bench_effect (job text not null)"


@dataclass(slots=True)
class Testbed:
    """Parameters shared by all sessions."""

    postgresql: PostgreSQL
    redis: Redis
    commands: dict[str, list[str]] = field(default_factory=dict)
    """Command of the driver of each rival."""

    async def prepare(self, rival: System) -> dict[str, Any]:
        """Set the rival up in a database to copy; returns what its driver says of itself."""
        database = template(rival)
        if rival.server == "redis":
            await self.redis.start()
        else:
            await self.postgresql.make(database)
        async with Driver(self.commands[rival.name], self.environment(rival, database)) as driver:
            said = await driver.ask("hello")
            await driver.ask("setup")
        if rival.server != "redis":
            async with connected(self.postgresql.dsn(database)) as conn:
                await conn.execute(PREPARE)
        return said

    def environment(self, rival: System, database: str) -> dict[str, str]:
        """Return the environment of a driver."""
        if rival.server == "redis":
            return {"BENCH_REDIS": self.redis.socket}
        return {"BENCH_DSN": self.postgresql.dsn(database)}

    @asynccontextmanager
    async def session(
        self, rival: System, *, workers: int = 0, source: str | None = None, keep: str | None = None
    ) -> AsyncIterator[SystemSession]:
        """A client, and so many workers that are warm, on a copy of ``source``, which stays under the name ``keep``."""
        database = keep or f"bench {rival.name}"
        if rival.server == "redis":
            await self.redis.ask("FLUSHALL")
        else:
            await self.postgresql.make(database, source or template(rival), large=source is not None)
        try:
            async with AsyncExitStack() as stack:
                start = self.commands[rival.name], self.environment(rival, database)
                client, *others = [await stack.enter_async_context(Driver(*start)) for _ in range(1 + workers)]
                conn = None
                if rival.server != "redis":
                    conn = await stack.enter_async_context(connected(self.postgresql.dsn(database)))
                await client.ask("open")
                session = SystemSession(self, rival, database, client, others, conn)
                await session.work()
                yield session
        finally:
            if rival.server != "redis" and keep is None:
                await self.postgresql.drop(database)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTiming:
    """One drain."""

    jobs: int
    seconds: float
    worker_cpu: float
    server_cpu: float
    wal: int
    """Bytes, of the filling too."""

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    @property
    def cpu(self) -> float:
        """Seconds, of workers and server."""
        return self.worker_cpu + self.server_cpu


class SystemSession:
    """Fill, drain, probe: what the scenarios are made of."""

    def __init__(
        self,
        testbed: Testbed,
        rival: System,
        database: str,
        client: Driver,
        workers: Sequence[Driver],
        conn: asyncpg.Connection | None,
    ) -> None:
        self.rival = rival
        self.client = client
        self.workers = workers
        self.conn = conn
        self._arena = testbed
        self._database = database
        self._finished = 0
        self._effects = 0

    async def work(self) -> None:
        """Let the workers work, and warm them up."""
        await asyncio.gather(*(worker.ask("work") for worker in self.workers))
        if self.workers:
            kind = "nothing" if "nothing" in self.rival.kinds else "plain"
            jobs = self.rival.jobs(WARM_UP, kind, seconds=0.5)
            await self.fill(jobs, kind)
            await self.finish(jobs)

    async def enqueue(self, jobs: int, *words: object) -> float:
        """Let the client enqueue so many; returns the seconds it took."""
        before = await self.left()
        began = time.monotonic()
        await self.client.ask("enqueue", *words)
        seconds = time.monotonic() - began
        if not self.workers and (found := await self.left() - before) != jobs:
            raise CheckFailed(f"{found:,} jobs wait after {jobs:,} were enqueued")
        return seconds

    async def fill(self, jobs: int, kind: str) -> float:
        """Let the client enqueue so many in bulk; returns the seconds it took, without those to make the arguments."""
        await self.client.ask("make", jobs)
        return await self.enqueue(jobs, "bulk", kind)

    async def drain(self, jobs: int, kind: str) -> DrainTiming:
        """Fill while the workers are frozen, thaw them, and stop the clock when the last outcome is committed."""
        wal = await self._wal()
        for worker in self.workers:
            worker.freeze()
        await self.fill(jobs, kind)
        cpu = [self._server_cpu(), sum(worker.cpu for worker in self.workers)]
        began = time.monotonic()
        for worker in self.workers:
            worker.thaw()
        await self.finish(jobs, kind)
        seconds = time.monotonic() - began
        return DrainTiming(
            jobs=jobs,
            seconds=seconds,
            server_cpu=self._server_cpu() - cpu[0],
            worker_cpu=sum(worker.cpu for worker in self.workers) - cpu[1],
            wal=await self._wal() - wal,
        )

    async def finish(self, jobs: int, kind: str = "") -> None:
        """Wait until so many more have started, and none is left unfinished."""
        wanted = self._finished + jobs
        before, deadline = -1, time.monotonic() + PATIENCE
        while (ran := await self.started()) < wanted or await self.left():
            if ran > before:
                before, deadline = ran, time.monotonic() + PATIENCE
            elif time.monotonic() > deadline:
                raise CheckFailed(f"{ran - self._finished:,} of {jobs:,} ran, and no other in {PATIENCE:g} s")
            await asyncio.sleep(LOOK_EVERY if ran < wanted else LOOK_CLOSER)
        if ran != wanted:
            raise CheckFailed(f"{ran - self._finished:,} handlers started for {jobs:,} jobs")
        self._finished = wanted
        self._effects += jobs if kind in EFFECTIVE else 0

    async def started(self) -> int:
        """Return the number of handlers started in all workers."""
        return sum(answer["started"] for answer in await asyncio.gather(*(w.ask("count") for w in self.workers)))

    async def left(self) -> int:
        """Return the number of unfinished jobs."""
        return await self._count(self.rival.left)

    async def check(self) -> None:
        """Raise unless the tables know of every job that ran, and of nothing else."""
        if self.rival.done and (done := await self._count(self.rival.done)) != self._finished:
            raise CheckFailed(f"{done:,} jobs are recorded as done instead of {self._finished:,}")
        if self.conn and (effects := await self._count("select count(*) from bench_effect")) != self._effects:
            raise CheckFailed(f"{effects:,} effects instead of {self._effects:,}")

    async def delays(self) -> list[float]:
        """Return the delays of the probes since the last call."""
        answers = await asyncio.gather(*(worker.ask("delays") for worker in self.workers))
        return [delay for answer in answers for delay in answer["delays"]]

    async def size(self) -> int:
        """Bytes of the database on disk."""
        return await self._arena.postgresql.size(self._database)

    @property
    def dsn(self) -> str:
        """Of the database."""
        return self._arena.postgresql.dsn(self._database)

    async def _count(self, question: str) -> int:
        if self.conn is not None:
            return int(await self.conn.fetchval(question))
        return sum([await self._arena.redis.ask(command.strip()) for command in question.split(";")])

    async def _wal(self) -> int:
        return await self._arena.postgresql.wal() if self.conn else 0

    def _server_cpu(self) -> float:
        return self._arena.postgresql.cpu if self.conn else self._arena.redis.cpu


def template(rival: System) -> str:
    """The database in which nothing but its tables is."""
    return f"bench {rival.name} template"


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to look with."""
    conn = await asyncpg.connect(dsn)
    try:
        yield conn
    finally:
        await conn.close()
