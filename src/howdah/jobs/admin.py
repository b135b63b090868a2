"""Admin: look at jobs and act on them; what the command line and the dashboard call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Unpack

import asyncpg

from howdah.audit.by import actor
from howdah.audit.trail import Entry, Trail
from howdah.errors import ConfigError, HowdahError
from howdah.handler import check_name
from howdah.job import State
from howdah.jobs.acts import Acted, Acts, Verb
from howdah.jobs.filter import Fields, Filter
from howdah.jobs.look import Look
from howdah.jobs.rows import (
    Attempt,
    Count,
    FailureGroup,
    Failures,
    JobRow,
    NodeRow,
    Page,
    QueueRow,
    Said,
    ScheduleRow,
)
from howdah.jobs.search import Search
from howdah.jobs.seen import Named
from howdah.pg.database import Database

LARGEST_PAGE = 1000
LARGEST_COUNT = 100_001
MOST_ATTEMPTS = 1000
MOST_NODES = 1000
MOST_FAILURES = 100_000
LARGEST_IN_LIST = 2048
EVERYTHING = 2**31 - 1
DAY = 86400.0


class Admin:
    """Get, list, count, retry, cancel, delete, move, pause, drain. Every answer is bounded in size and in time.

    What is changed is recorded with the change, under the name of :func:`howdah.audit.acting_as`.
    """

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._look = Look(database, pool)
        self._sql = self._look.sql
        self._search = Search(self._sql)
        self._trail = Trail(database.schema)
        self._acts = Acts(self._look, self._search, self._trail)

    # ---------------------------------------------------------------- looking

    async def get(self, id: int) -> JobRow | None:
        """Everything about one job, with the history of its attempts; ``None`` when there is no such job."""
        async with self._look.read() as conn:
            rows = await conn.fetch(self._sql["get"], [id], EVERYTHING)
            if not rows:
                return None
            attempts = await conn.fetch(self._sql["attempts"], id, MOST_ATTEMPTS)
        return JobRow.of(rows[0], [Attempt(**row) for row in attempts])

    async def list(
        self,
        state: Filter | State | str | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
        patience: float | None = None,
        **fields: Unpack[Fields],
    ) -> Page:
        """Jobs that fit, by descending id, below ``before``: the ``next`` of a page begins the next one.

        Without the history of attempts; args, meta and results of more than 2 KiB are left out. A search that takes
        longer than ``patience`` (5 s unless said otherwise) says so: ``cut`` and ``looked``.
        """
        filter = Filter.of(state, fields)
        check_size("limit", limit, LARGEST_PAGE, "ask for the next page instead")
        async with self._look.read() as conn:
            found = await self._search.find(conn, filter, before=before, limit=limit, patience=patience)
            rows = await conn.fetch(self._sql["get"], found.ids, LARGEST_IN_LIST)
        return Page(map(JobRow.of, rows), looked=found.looked, next=found.next, cut=found.cut)

    async def count(
        self, state: Filter | State | str | None = None, *, most: int = 10_001, **fields: Unpack[Fields]
    ) -> Count:
        """How many jobs fit: exactly for what waits or runs in a queue, else up to ``most``, then "10,000+"."""
        filter = Filter.of(state, fields)
        check_size("most", most, LARGEST_COUNT, "nobody reads more")
        async with self._look.read() as conn:
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
        """The ``newest`` failed jobs of the last ``seconds``, grouped by kind and what their errors have in common."""
        check_size("limit", limit, LARGEST_PAGE, "the largest groups come first")
        check_size("newest", newest, MOST_FAILURES, "look at fewer")
        async with self._look.read() as conn:
            rows = await conn.fetch(self._sql["failures"], newest, seconds, queue, kind, limit)
        names = FailureGroup.__struct_fields__
        groups = [FailureGroup(**{name: row[name] for name in names}) for row in rows if row["kind"] is not None]
        looked, oldest, all_groups = (rows[0][name] for name in ("looked", "oldest", "groups"))
        more = all_groups - len(groups)
        return Failures(groups=groups, more=more, looked=looked, cut=looked >= newest, oldest=oldest)

    async def queues(self) -> Sequence[QueueRow]:
        """Every queue with what waits, runs and lately finished in it."""
        async with self._look.read() as conn:
            return [QueueRow(**row) for row in await conn.fetch(self._sql["count_queues"])]

    async def nodes(self, *, all: bool = False) -> Sequence[NodeRow]:
        """The nodes, newest first; ``all``: also those that went offline."""
        async with self._look.read() as conn:
            return [NodeRow(**row) for row in await conn.fetch(self._sql["nodes"], all, MOST_NODES)]

    async def schedules(self) -> Sequence[ScheduleRow]:
        """The recurring jobs, the next one first."""
        async with self._look.read() as conn:
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
    ) -> Sequence[Entry]:
        """What people did, newest first, below ``before``; ``thing`` and ``id``: to one job, queue, node and so on."""
        scope = {"who": who, "via": via, "verb": verb, "thing": thing, "since": since, "until": until}
        async with self._look.reach() as conn:
            try:
                return await self._trail.list(conn, **scope, id=id, before=before, limit=limit)  # type: ignore[arg-type]
            except asyncpg.QueryCanceledError:
                raise HowdahError("this took too long and was stopped; ask for an id, or for less time") from None

    # ---------------------------------------------------------------- jobs

    # Jobs are named by id, or by the rows of `list` and `get`: a job that is no longer as its row says, or not in
    # ``state``, is left alone and answered with ``changed``.

    async def retry(self, ids: Sequence[Named], *, state: State | str | None = None) -> Sequence[Said]:
        """Put failed or cancelled jobs back into their queue, with no attempt used; says what became of each."""
        return await self._acts.on("retry", ids, state=state)

    async def cancel(self, ids: Sequence[Named], *, state: State | str | None = None) -> Sequence[Said]:
        """Cancel jobs: waiting ones at once, running ones by the next heartbeat; says what became of each."""
        return await self._acts.on("cancel", ids, state=state)

    async def delete(self, ids: Sequence[Named], *, state: State | str | None = None) -> Sequence[Said]:
        """Remove jobs that wait or are over, and all that was written of them; running ones must be cancelled first."""
        return await self._acts.on("delete", ids, state=state)

    async def reprioritize(
        self, ids: Sequence[Named], priority: int, *, state: State | str | None = None
    ) -> Sequence[Said]:
        """Give waiting jobs another priority, behind those that have it already; retries keep it."""
        return await self._acts.on("reprioritize", ids, priority, state=state)

    async def move(self, ids: Sequence[Named], queue: str, *, state: State | str | None = None) -> Sequence[Said]:
        """Move waiting jobs to the end of another queue; retries stay there."""
        return await self._acts.on("move", ids, queue, state=state)

    async def act(
        self,
        verb: Verb,
        filter: Filter,
        *,
        to: str | int | None = None,
        before: int | None = None,
        limit: int | None = None,
        progress: Callable[[Acted], object] | None = None,
    ) -> Acted:
        """Retry, cancel, delete, reprioritize or move every job that fits, a thousand in a transaction, newest first.

        ``to`` is the priority or the queue. Only jobs that exist now are met, and each once; one that changes between
        the search and the act is left alone. ``progress`` is called after every transaction; when it raises, the act
        ends there, and ``before`` goes on where ``Acted.next`` says.
        """
        return await self._acts.on_all(verb, filter, to=to, before=before, limit=limit, progress=progress)

    async def retry_where(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | str = State.FAILED,
        limit: int = LARGEST_PAGE,
    ) -> Sequence[Said]:
        """Retry the newest ``limit`` jobs that failed (or were cancelled) in this queue, of this kind."""
        return await self._where("retry", Filter(state=state, queue=queue, kind=kind), limit)

    async def cancel_where(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: State | str = State.QUEUED,
        limit: int = LARGEST_PAGE,
    ) -> Sequence[Said]:
        """Cancel the newest ``limit`` jobs that wait (or run) in this queue, of this kind."""
        return await self._where("cancel", Filter(state=state, queue=queue, kind=kind), limit)

    async def _where(self, verb: Verb, filter: Filter, limit: int) -> Sequence[Said]:
        check_size("limit", limit, LARGEST_PAGE, "run it again for more")
        return (await self._acts.on_all(verb, filter, limit=limit)).chunk

    # ---------------------------------------------------------------- queues, schedules, nodes

    async def pause(self, queue: str, by: str | None = None) -> None:
        """Stop claiming from a queue, on every node; what runs goes on. ``by``: for others to see."""
        check_name("queue", queue)
        by = by or (actor().who if actor().via != "code" else None)
        async with self._look.act() as conn:
            was = bool(await conn.fetchval(self._sql["paused"], "queue", queue))
            await conn.fetchval(self._sql["pause"], queue, by)
            await self._trail.record(conn, "pause", "queue", [queue], before={"paused": was}, after={"paused": True})

    async def resume(self, queue: str) -> bool:
        """Claim from a queue again; returns whether it was paused."""
        async with self._look.act() as conn:
            was = bool(await conn.fetchval(self._sql["resume"], queue))
            if was:
                was_so, is_so = {"paused": True}, {"paused": False}
                await self._trail.record(conn, "resume", "queue", [queue], before=was_so, after=is_so)
        return was

    async def pause_schedule(self, name: str, paused: bool = True) -> None:
        """Stop a schedule, or let it go on from now."""
        async with self._look.act() as conn:
            was = await conn.fetchval(self._sql["paused"], "schedule", name)
            if await conn.fetchval(self._sql["pause_schedule"], name, paused) is None:
                raise ConfigError(f"there is no schedule {name!r}; `howdah schedules` lists them")
            verb, was_so, is_so = "pause" if paused else "resume", {"paused": was}, {"paused": paused}
            await self._trail.record(conn, verb, "schedule", [name], before=was_so, after=is_so)

    async def drain(self, node: int) -> str:
        """Let a node take no more and end when what it runs is over; it hears of it by its next heartbeat.

        Returns what it is called. Never undone: a process that starts is another node.
        """
        async with self._look.act() as conn:
            row = await conn.fetchrow(self._sql["drain"], node)
            if row is None:
                raise ConfigError(f"there is no node {node}; `howdah nodes` lists them")
            if row["state"] == "offline":
                raise ConfigError(f"node {node} is offline, so there is nothing to drain")
            was_so, is_so = {"state": row["was"]}, {"state": row["state"]}
            await self._trail.record(conn, "drain", "node", [node], before=was_so, after=is_so)
        return str(row["name"])


def check_size(name: str, value: int, most: int, instead: str) -> None:
    """Refuse what would be too much at once."""
    if not 1 <= value <= most:
        raise ConfigError(f"{name} must be from 1 to {most}, got {value!r}; {instead}")
