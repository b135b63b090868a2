"""The store protocol: what a worker needs of the database or control plane that its jobs come from.

The stores are :class:`JobStore`, :class:`TableStore` and :class:`RemoteStore`; all pass the same conformance tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Literal, Protocol

import msgspec

from howdah.job import Job
from howdah.outcome import Ack

NOTHING: AbstractAsyncContextManager[None] = nullcontext()
"""Does nothing around statements."""


class Interrupted(Exception):
    """A transaction was interrupted by the server or the connection, not by its handler.

    If its commit was already sent, it may have been carried out; the next ack of the job finds out.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class RecentErrors:
    """The last errors that were raised inside its ``async with`` blocks."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: list[BaseException] = []

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.last = [*self.last[-9:], error]


class Transaction:
    """The transaction of one job: its statements commit together with the job's completion.

    It begins before the handler and ends after it; a handler never commits or rolls back itself.
    """

    __slots__ = ("_asking", "_failures", "_turn", "blocked", "connection")

    def __init__(self, connection: Any, asking: AbstractAsyncContextManager[None] = NOTHING) -> None:
        self.connection = connection
        """The asyncpg connection; take it with :meth:`use`."""
        self._asking = asking
        self._turn = asyncio.Lock()
        self._failures = RecentErrors()
        self.blocked = False
        """True if the event loop was blocked so long that the server may have ended the transaction."""

    @property
    def failures(self) -> Sequence[BaseException]:
        """The last errors that came through the connection."""
        return self._failures.last

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        """Take the asyncpg connection for a while; calls take turns."""
        async with self._turn, self._failures:
            yield self.connection

    async def execute(self, statement: str, *args: Any) -> str:
        """Run a statement; returns its status."""
        async with self._turn, self._asking, self._failures:
            return str(await self.connection.execute(statement, *args))

    async def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once for every row of arguments."""
        async with self._turn, self._asking, self._failures:
            await self.connection.executemany(statement, rows)

    async def fetch(self, statement: str, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        async with self._turn, self._asking, self._failures:
            return list(await self.connection.fetch(statement, *args))

    async def fetchrow(self, statement: str, *args: Any) -> Any:
        """Run a statement and return its first row, or ``None``."""
        async with self._turn, self._asking, self._failures:
            return await self.connection.fetchrow(statement, *args)

    async def fetchval(self, statement: str, *args: Any) -> Any:
        """Run a statement and return the first column of its first row, or ``None``."""
        async with self._turn, self._asking, self._failures:
            return await self.connection.fetchval(statement, *args)


Stream = Literal["stdout", "stderr", "log"]


class JobLogEntry(msgspec.Struct, kw_only=True):
    """One entry of a job log: lines of one stream, or progress, or both."""

    stream: Stream = "log"
    lines: list[str] = []
    progress: float | None = None
    note: str | None = None


class RunRecord(msgspec.Struct, kw_only=True):
    """The record of one run: ``running`` with its spec when it starts, ``done`` or ``failed`` with the result."""

    state: Literal["running", "done", "failed"]
    spec: bytes | None = None
    """JSON."""
    code: str | None = None
    result: bytes | None = None
    """JSON."""


class JobLogStore(Protocol):
    """A store that keeps job logs. Both methods raise :class:`LeaseLost` when the lease of the job is lost."""

    async def write_log(self, job: Job, entry: JobLogEntry) -> None:
        """Store a log entry of a running job."""
        ...

    async def record_run(self, job: Job, run: RunRecord) -> None:
        """Store the run record of a running job."""
        ...


class Store(Protocol):
    """The interface of every store: jobs are claimed from it, and their outcomes are recorded in it."""

    @property
    def job_log(self) -> JobLogStore | None:
        """The store of the job logs; ``None`` if they are not kept."""
        ...

    async def claim(self, limit: int, room: Mapping[str, int]) -> list[Job]:
        """Claim up to ``limit`` jobs that are due, at most ``room[queue]`` of a limited queue. Never waits for jobs."""
        ...

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        """Record outcomes; returns the acks whose lease was still held, with their final outcome.

        ``finished`` are the tokens of the leases that hold no more jobs after this. The store sets ``postponed`` of
        each ack: a postponed ack is neither recorded nor lost, its lease is not finished, and it has to be sent again.
        """
        ...

    async def release(self, tokens: Sequence[int]) -> int:
        """Release all jobs of these leases without charging an attempt; returns their number."""
        ...

    async def rest(self) -> None:
        """Wait until there may be jobs to claim. Returns at once the first time after :meth:`claim` found jobs."""
        ...

    def wake(self) -> None:
        """End :meth:`rest` now."""
        ...

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        """Run ``body`` and record success in one transaction; raises :class:`LeaseLost` if the lease is lost."""
        ...

    async def transact_batch(self, body: Callable[[Transaction], Awaitable[Sequence[Ack]]]) -> Sequence[Ack]:
        """Run ``body`` and record the successes that it returns in one transaction.

        Returns those whose lease is lost; if there are any, everything is rolled back and no success is recorded.
        """
        ...
