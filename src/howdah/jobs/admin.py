"""Admin: look at jobs and act on them; what the command line and the dashboard call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from howdah.errors import ConfigError, DatabaseUnreachable, HowdahError
from howdah.handler import check_name
from howdah.job import State
from howdah.jobs.rows import Attempt, JobRow, NodeRow, QueueRow, Said, ScheduleRow
from howdah.pg import sql
from howdah.pg.database import BROKEN, Database, hide_password

PATIENCE = 5.0
"""Seconds a look at the tables may take."""
LARGEST_PAGE = 1000
CHUNK = 1000
"""Jobs retried or cancelled in one transaction."""
MOST_ATTEMPTS = 1000
MOST_NODES = 1000
LARGEST_IN_LIST = 2048
BY_INDEX = """
select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)
"""
"""A page is read in the order of an index, whatever statistics say: sorting all of history is never quicker."""
EVERYTHING = 2**31 - 1
NEWEST = 2**63 - 1


class Admin:
    """Get, list, count, retry, cancel, pause. Every answer is bounded in size and in time."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._database = database
        self._pool = pool
        self._sql = sql.load("howdah.jobs", schema=database.schema)

    async def get(self, id: int) -> JobRow | None:
        """Everything about one job, with the history of its attempts; ``None`` when there is no such job."""
        async with self._look() as conn:
            rows = await conn.fetch(self._sql["get"], [id], EVERYTHING)
            if not rows:
                return None
            attempts = await conn.fetch(self._sql["attempts"], id, MOST_ATTEMPTS)
        return JobRow.of(rows[0], [Attempt(**row) for row in attempts])

    async def list(
        self,
        state: State | str | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        key: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[JobRow]:
        """Jobs by descending id, below ``before``: pass the last id of a page to get the next one.

        Without the history of attempts; args, meta and results of more than 2 KiB are left out.
        """
        async with self._look() as conn:
            ids = await self._ids(conn, state, queue, kind, key, before, limit)
            rows = await conn.fetch(self._sql["get"], ids, LARGEST_IN_LIST)
        return [JobRow.of(row) for row in rows]

    async def queues(self) -> Sequence[QueueRow]:
        """Every queue with what waits, runs and lately finished in it."""
        async with self._look() as conn:
            return [QueueRow(**row) for row in await conn.fetch(self._sql["count_queues"])]

    async def nodes(self, *, all: bool = False) -> Sequence[NodeRow]:
        """The nodes, newest first; ``all``: also those that went offline."""
        async with self._look() as conn:
            return [NodeRow(**row) for row in await conn.fetch(self._sql["nodes"], all, MOST_NODES)]

    async def schedules(self) -> Sequence[ScheduleRow]:
        """The recurring jobs, the next one first."""
        async with self._look() as conn:
            return [ScheduleRow(**row) for row in await conn.fetch(self._sql["schedules"])]

    async def pause_schedule(self, name: str, paused: bool = True) -> None:
        """Stop a schedule, or let it go on from now."""
        async with self._reach() as conn:
            if await conn.fetchval(self._sql["pause_schedule"], name, paused) is None:
                raise ConfigError(f"there is no schedule {name!r}; `howdah schedules` lists them")

    async def retry(self, ids: Sequence[int]) -> Sequence[Said]:
        """Put failed or cancelled jobs back into their queue, with no attempt used; says what became of each."""
        return await self._act("retry", ids)

    async def cancel(self, ids: Sequence[int]) -> Sequence[Said]:
        """Cancel jobs: waiting ones at once, running ones by the next heartbeat; says what became of each."""
        return await self._act("cancel", ids)

    async def retry_where(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | str = State.FAILED,
        limit: int = LARGEST_PAGE,
    ) -> Sequence[Said]:
        """Retry the newest ``limit`` jobs that failed (or were cancelled) in this queue, of this kind."""
        if state not in (State.FAILED, State.CANCELLED):
            raise ConfigError(f"only failed and cancelled jobs can be retried, got state {str(state)!r}")
        return await self.retry(await self._where(state, queue, kind, limit))

    async def cancel_where(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | str = State.QUEUED,
        limit: int = LARGEST_PAGE,
    ) -> Sequence[Said]:
        """Cancel the newest ``limit`` jobs that wait (or run) in this queue, of this kind."""
        if state not in (State.QUEUED, State.RUNNING):
            raise ConfigError(f"only queued and running jobs can be cancelled, got state {str(state)!r}")
        return await self.cancel(await self._where(state, queue, kind, limit))

    async def pause(self, queue: str, by: str | None = None) -> None:
        """Stop claiming from a queue, on every node; what runs goes on."""
        check_name("queue", queue)
        async with self._reach() as conn:
            await conn.fetchval(self._sql["pause"], queue, by)

    async def resume(self, queue: str) -> bool:
        """Claim from a queue again; returns whether it was paused."""
        async with self._reach() as conn:
            return bool(await conn.fetchval(self._sql["resume"], queue))

    async def _where(self, state: State | str, queue: str | None, kind: str | None, limit: int) -> Sequence[int]:
        async with self._look() as conn:
            return await self._ids(conn, state, queue, kind, None, None, limit)

    async def _ids(
        self,
        conn: Any,
        state: State | str | None,
        queue: str | None,
        kind: str | None,
        key: str | None,
        before: int | None,
        limit: int,
    ) -> Sequence[int]:
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")
        before = NEWEST if before is None else max(0, min(before, NEWEST))
        match state:
            case None:
                rows = await conn.fetch(self._sql["list_all"], before, queue, kind, key, limit)
            case State.QUEUED | State.RUNNING if key is not None:
                rows = await conn.fetch(self._sql["list_held"], key, str(state), before, queue, kind)
            case State.QUEUED | State.RUNNING:
                rows = await conn.fetch(self._sql[f"list_{state}"], before, queue, kind, limit)
            case State.DONE if queue is kind is key is None:
                rows = await conn.fetch(self._sql["list_done"], before, limit)
            case State.DONE:
                rows = await conn.fetch(self._sql["list_done_of"], before, queue, kind, key, limit)
            case State.FAILED | State.CANCELLED:
                rows = await conn.fetch(self._sql["list_bad"], state[0], before, queue, kind, key, limit)
            case _:
                raise ConfigError(f"there is no state {state!r}; use {', '.join(State)}")
        return [row["id"] for row in rows]

    async def _act(self, verb: str, ids: Sequence[int]) -> Sequence[Said]:
        said: list[Said] = []
        for start in range(0, len(ids), CHUNK):
            async with self._reach() as conn:
                said += [Said(**row) for row in await conn.fetch(self._sql[verb], list(ids[start : start + CHUNK]))]
        return said

    @asynccontextmanager
    async def _look(self) -> AsyncIterator[Any]:
        """A connection that reads one moment and gives up in time."""
        async with self._reach() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            await conn.execute(BY_INDEX, str(int(PATIENCE * 1000)))
            try:
                yield conn
            except asyncpg.QueryCanceledError:
                raise HowdahError(
                    f"this took longer than {PATIENCE:g} s and was stopped; ask by id, by state failed, queued or"
                    " running, or without queue, kind and key"
                ) from None

    @asynccontextmanager
    async def _reach(self) -> AsyncIterator[Any]:
        try:
            async with (await self._pool()).acquire() as conn:
                yield conn
        except BROKEN as error:
            raise DatabaseUnreachable(f"lost {hide_password(self._database.dsn)}: {error}") from error
