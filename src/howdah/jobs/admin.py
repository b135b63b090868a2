"""Reads and actions on jobs, queues, nodes and schedules, for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Unpack

import asyncpg

from howdah.audit import AuditEntry, AuditTrail, actor
from howdah.errors import ConfigError, HowdahError
from howdah.handler import check_name
from howdah.job import State
from howdah.jobs.actions import ActionProgress, JobActions, JobReference, Verb
from howdah.jobs.rows import (
    ActionResult,
    AttemptRow,
    Count,
    FailureGroup,
    Failures,
    JobPage,
    JobRow,
    NodeRow,
    QueueRow,
    ScheduleRow,
    is_visible,
)
from howdah.jobs.search import AdminConnection, Fields, Filter, Search
from howdah.postgres.database import Database
from howdah.redact import Redact

LARGEST_PAGE = 1000
LARGEST_COUNT = 100_001
MOST_ATTEMPTS = 1000
MOST_NODES = 1000
MOST_FAILURES = 100_000
LARGEST_IN_LIST = 2048
EVERYTHING = 2**31 - 1
DAY = 86400.0


class Admin:
    """Get, list, count, retry, cancel, delete, move, pause, drain. Every result is bounded in size and time.

    Changes are recorded in the audit log in the same transaction, under the name of :func:`howdah.audit.acting_as`.
    """

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._connection = AdminConnection(database, pool)
        self._sql = self._connection.sql
        self._search = Search(self._sql)
        self._trail = AuditTrail(database.schema)
        self._acts = JobActions(self._connection, self._search, self._trail)

    # ---------------------------------------------------------------- looking

    async def get(self, id: int) -> JobRow | None:
        """Return one job with its attempts, or ``None``."""
        async with self._connection.read() as conn:
            rows = await conn.fetch(self._sql["get"], [id], EVERYTHING)
            if not rows:
                return None
            attempts = await conn.fetch(self._sql["attempts"], id, MOST_ATTEMPTS)
        return JobRow.of(rows[0], [AttemptRow(**row) for row in attempts])

    async def list(
        self,
        state: Filter | State | str | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
        patience: float | None = None,
        redact: Redact | None = None,
        **fields: Unpack[Fields],
    ) -> JobPage:
        """Return matching jobs by descending id, below ``before``: pass the ``next`` of a page to get the next one.

        Without the history of attempts; args, meta and results of more than 2 KiB are left out. A search that takes
        longer than ``patience`` (default 5 s) ends early: see ``cut`` and ``looked``. With ``redact``, a text is found
        only where it is still visible after redaction: otherwise a search would tell hidden values letter by letter.
        """
        filter = Filter.of(state, fields)
        check_size("limit", limit, LARGEST_PAGE, "ask for the next page instead")
        async with self._connection.read() as conn:
            visible = None if redact is None or filter.text is None else partial(self._visible, filter.text, redact)
            found = await self._search.find(
                conn, filter, before=before, limit=limit, patience=patience, visible=visible
            )
            rows = await conn.fetch(self._sql["get"], found.ids, LARGEST_IN_LIST)
        return JobPage(map(JobRow.of, rows), looked=found.looked, next=found.next, cut=found.cut)

    async def _visible(self, text: str, redact: Redact, conn: Any, ids: Sequence[int]) -> Sequence[int]:
        rows = await conn.fetch(self._sql["get"], ids, EVERYTHING)
        return [row["id"] for row in rows if is_visible(text, JobRow.of(row), redact)]

    async def count(
        self, state: Filter | State | str | None = None, *, most: int = 10_001, **fields: Unpack[Fields]
    ) -> Count:
        """Count matching jobs: exactly for queued or running ones, else up to ``most``, then "10,000+"."""
        filter = Filter.of(state, fields)
        check_size("most", most, LARGEST_COUNT, "larger counts are of no use")
        async with self._connection.read() as conn:
            if filter.state in (State.QUEUED, State.RUNNING) and filter.key is None and not filter.inspects:
                known = await conn.fetchval(self._sql[f"count_{filter.state}"], filter.queue, filter.kind)
                return Count(jobs=known, more=False)
            found = await self._search.find(conn, filter, before=None, limit=most)
        full = len(found.ids) == most
        return Count(jobs=len(found.ids) - full, more=full or found.cut)

    async def failures(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        seconds: float | None = DAY,
        newest: int = 10_000,
        limit: int = 50,
    ) -> Failures:
        """Group the ``newest`` failed jobs of the last ``seconds`` by kind and the common part of their errors."""
        check_size("limit", limit, LARGEST_PAGE, "the largest groups come first")
        check_size("newest", newest, MOST_FAILURES, "look at fewer")
        async with self._connection.read() as conn:
            rows = await conn.fetch(self._sql["failures"], newest, seconds, queue, kind, limit)
        names = FailureGroup.__struct_fields__
        groups = [FailureGroup(**{name: row[name] for name in names}) for row in rows if row["kind"] is not None]
        looked, oldest, all_groups = (rows[0][name] for name in ("looked", "oldest", "groups"))
        more = all_groups - len(groups)
        return Failures(groups=groups, more=more, looked=looked, cut=looked >= newest, oldest=oldest)

    async def queues(self) -> Sequence[QueueRow]:
        """Return every queue with its queued, running and recently finished jobs."""
        async with self._connection.read() as conn:
            return [QueueRow(**row) for row in await conn.fetch(self._sql["count_queues"])]

    async def nodes(self, *, all: bool = False) -> Sequence[NodeRow]:
        """Return the nodes, newest first; ``all``: also stopped ones."""
        async with self._connection.read() as conn:
            return [NodeRow(**row) for row in await conn.fetch(self._sql["nodes"], all, MOST_NODES)]

    async def schedules(self) -> Sequence[ScheduleRow]:
        """Return the schedules, the next due first."""
        async with self._connection.read() as conn:
            return [ScheduleRow(**row) for row in await conn.fetch(self._sql["schedules"])]

    async def audit(
        self,
        *,
        who: str | None = None,
        via: str | None = None,
        verb: str | None = None,
        thing: str | None = None,
        id: object = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[AuditEntry]:
        """Return audit entries, newest first, below ``before``; ``thing`` and ``id`` select one object."""
        scope = {"who": who, "via": via, "verb": verb, "thing": thing, "since": since, "until": until}
        async with self._connection.reach() as conn:
            try:
                return await self._trail.list(conn, **scope, id=id, before=before, limit=limit)  # type: ignore[arg-type]
            except asyncpg.QueryCanceledError:
                raise HowdahError("this took too long and was stopped; ask for an id, or for less time") from None

    # ---------------------------------------------------------------- jobs

    # Jobs are named by id, or by the rows of `list` and `get`: a job that is no longer as its row says, or not in
    # ``state``, is left alone and answered with ``changed``.

    async def retry(self, ids: Sequence[JobReference], *, state: State | str | None = None) -> Sequence[ActionResult]:
        """Put failed or cancelled jobs back into their queue, with no attempt used; return the result for each."""
        return await self._acts.on("retry", ids, state=state)

    async def cancel(self, ids: Sequence[JobReference], *, state: State | str | None = None) -> Sequence[ActionResult]:
        """Cancel jobs: waiting ones at once, running ones at the next heartbeat; return the result for each."""
        return await self._acts.on("cancel", ids, state=state)

    async def delete(self, ids: Sequence[JobReference], *, state: State | str | None = None) -> Sequence[ActionResult]:
        """Delete queued or finished jobs and all their records; running ones must be cancelled first."""
        return await self._acts.on("delete", ids, state=state)

    async def reprioritize(
        self, ids: Sequence[JobReference], priority: int, *, state: State | str | None = None
    ) -> Sequence[ActionResult]:
        """Change the priority of queued jobs; they line up behind jobs that have it already, and retries keep it."""
        return await self._acts.on("reprioritize", ids, priority, state=state)

    async def move(
        self, ids: Sequence[JobReference], queue: str, *, state: State | str | None = None
    ) -> Sequence[ActionResult]:
        """Move queued jobs to the end of another queue; retries stay there."""
        return await self._acts.on("move", ids, queue, state=state)

    async def act(
        self,
        verb: Verb,
        filter: Filter,
        *,
        to: str | int | None = None,
        before: int | None = None,
        limit: int | None = None,
        progress: Callable[[ActionProgress], object] | None = None,
    ) -> ActionProgress:
        """Retry, cancel, delete, reprioritize or move every matching job, a thousand per transaction, newest first.

        ``to`` is the priority or the queue. Only jobs that exist now are met, and each once; one that changes between
        the search and the act is left alone. ``progress`` is called after every transaction; when it raises, the act
        ends there, and ``before`` continues at ``ActionProgress.next``.
        """
        return await self._acts.on_all(verb, filter, to=to, before=before, limit=limit, progress=progress)

    async def retry_where(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | str = State.FAILED,
        limit: int = LARGEST_PAGE,
    ) -> Sequence[ActionResult]:
        """Retry the newest ``limit`` jobs that failed (or were cancelled) in this queue, of this kind."""
        return await self._where("retry", Filter(state=state, queue=queue, kind=kind), limit)

    async def cancel_where(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | str = State.QUEUED,
        limit: int = LARGEST_PAGE,
    ) -> Sequence[ActionResult]:
        """Cancel the newest ``limit`` jobs that wait (or run) in this queue, of this kind."""
        return await self._where("cancel", Filter(state=state, queue=queue, kind=kind), limit)

    async def _where(self, verb: Verb, filter: Filter, limit: int) -> Sequence[ActionResult]:
        check_size("limit", limit, LARGEST_PAGE, "run it again for more")
        return (await self._acts.on_all(verb, filter, limit=limit)).chunk

    # ---------------------------------------------------------------- queues, schedules, nodes

    async def pause(self, queue: str, by: str | None = None) -> None:
        """Stop claiming from a queue on every node; running jobs continue. ``by`` is displayed."""
        check_name("queue", queue)
        by = by or (actor().who if actor().via != "code" else None)
        async with self._connection.act() as conn:
            was = bool(await conn.fetchval(self._sql["paused"], "queue", queue))
            await conn.fetchval(self._sql["pause"], queue, by)
            await self._trail.record(conn, "pause", "queue", [queue], before={"paused": was}, after={"paused": True})

    async def resume(self, queue: str) -> bool:
        """Resume a queue; return whether it was paused."""
        async with self._connection.act() as conn:
            was = bool(await conn.fetchval(self._sql["resume"], queue))
            if was:
                was_so, is_so = {"paused": True}, {"paused": False}
                await self._trail.record(conn, "resume", "queue", [queue], before=was_so, after=is_so)
        return was

    async def pause_schedule(self, name: str, paused: bool = True) -> None:
        """Pause a schedule, or resume it from now."""
        async with self._connection.act() as conn:
            was = await conn.fetchval(self._sql["paused"], "schedule", name)
            if await conn.fetchval(self._sql["pause_schedule"], name, paused) is None:
                raise ConfigError(f"there is no schedule {name!r}; `howdah schedules` lists them")
            verb, was_so, is_so = "pause" if paused else "resume", {"paused": was}, {"paused": paused}
            await self._trail.record(conn, verb, "schedule", [name], before=was_so, after=is_so)

    async def drain(self, node: int) -> str:
        """Drain a node: it claims no more, finishes its jobs and exits. It reads the request at its next heartbeat.

        Returns what it is called. Never undone: a process that starts is another node.
        """
        async with self._connection.act() as conn:
            row = await conn.fetchrow(self._sql["drain"], node)
            if row is None:
                raise ConfigError(f"there is no node {node}; `howdah nodes` lists them")
            if row["state"] == "offline":
                raise ConfigError(f"node {node} is offline, so there is nothing to drain")
            was_so, is_so = {"state": row["was"]}, {"state": row["state"]}
            await self._trail.record(conn, "drain", "node", [node], before=was_so, after=is_so)
        return str(row["name"])


def check_size(name: str, value: int, most: int, instead: str) -> None:
    """Raise :class:`ConfigError` if a size is out of bounds."""
    if not 1 <= value <= most:
        raise ConfigError(f"{name} must be from 1 to {most}, got {value!r}; {instead}")
