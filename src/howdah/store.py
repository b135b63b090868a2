"""Store: what a worker needs of the place its work comes from. Every room with work in it implements this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from howdah.job import Job
from howdah.outcome import Ack

NOBODY: AbstractAsyncContextManager[None] = nullcontext()
"""Nobody needs to know that an answer is awaited."""


class Interrupted(Exception):
    """A transaction was broken off by the server or the connection to it, not by its handler.

    Whether a commit on its way was carried out is unknown; the outcome that is recorded next finds out.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


class Failures:
    """The last errors that were raised inside its ``async with`` blocks."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: list[BaseException] = []

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.last = [*self.last[-9:], error]


class Transaction:
    """The transaction of one job: what is done through it commits together with the job's completion.

    It begins before the handler and ends after it; a handler never commits or rolls back itself.
    """

    __slots__ = ("_asking", "_failures", "_turn", "blocked", "connection")

    def __init__(self, connection: Any, asking: AbstractAsyncContextManager[None] = NOBODY) -> None:
        self.connection = connection
        """The asyncpg connection underneath; take it with :meth:`use`."""
        self._asking = asking
        self._turn = asyncio.Lock()
        self._failures = Failures()
        self.blocked = False
        """Whether the event loop was blocked for so long that the server may have ended the transaction."""

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


class Store(Protocol):
    """Where work comes from and where its outcome goes."""

    async def claim(self, most: int, room: Mapping[str, int]) -> list[Job]:
        """Take up to ``most`` jobs that are due, at most ``room[queue]`` of a limited queue. Never waits for work."""
        ...

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        """Record how attempts ended; returns those that were still ours, with their final outcome.

        ``finished`` are the tokens of which nothing is left after this. The store sets ``postponed`` of each ack: one
        that is postponed is neither recorded nor lost, its lease is not over, and it has to be reported again.
        """
        ...

    async def release(self, tokens: Sequence[int]) -> int:
        """Hand back all that is left of these leases, charging no attempt; returns how many jobs."""
        ...

    async def rest(self) -> None:
        """Wait until another claim is worth it. Returns at once the first time after :meth:`claim` found work."""
        ...

    def wake(self) -> None:
        """End :meth:`rest` now."""
        ...

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        """Run ``body`` and record success in one transaction; raises :class:`LeaseLost` if it is not ours."""
        ...
