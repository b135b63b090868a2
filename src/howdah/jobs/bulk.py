"""Bulk: many jobs by COPY, in one transaction, as few runs as possible."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any

from howdah.jobs.new import Enqueued, NewJob
from howdah.pg.copy import field
from howdah.pg.database import columns
from howdah.pg.sql import render

CHUNK = 5000
LONGEST_RUN = 500
"""A lone run is claimed by one node at a time; keep it short enough to share."""
COLUMNS = (
    "id",
    "run_at",
    "timeout",
    "priority",
    "max_attempts",
    "queue",
    "kind",
    "key",
    "args",
    "meta",
    "trace",
)


class Bulk:
    """Enqueues many jobs through one connection, whatever codecs its owner has set on it."""

    def __init__(self, schema: str, sql: Mapping[str, str]) -> None:
        self._schema = schema
        self._sql = sql
        self._reserve = render("select lo, hi, clock_timestamp() as now from {schema}.reserve($1)", {"schema": schema})

    async def enqueue(self, conn: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Enqueue all of them or none; returns what became of each, in order."""
        made: list[Enqueued] = []
        async with conn.transaction():
            for chunk in _chunks(jobs):
                made += await self._chunk(conn, chunk)
        return made

    async def _chunk(self, conn: Any, jobs: list[NewJob]) -> list[Enqueued]:
        for job in jobs:
            job.check()
        spans = await conn.fetch(self._reserve, len(jobs))
        now: datetime = spans[0]["now"]
        ids = iter([id for span in spans for id in range(span["lo"], span["hi"])])
        # neighbours in a lane get neighbouring ids, whatever order they came in
        order = sorted(range(len(jobs)), key=lambda i: (jobs[i].queue, jobs[i].kind, jobs[i].priority))
        made = [Enqueued(0, True)] * len(jobs)
        for i in order:
            made[i] = Enqueued(next(ids), True)
        await self._take_keys(conn, jobs, made)
        rows = [(made[i].id, jobs[i], _due(jobs[i], now)) for i in order if made[i].fresh]
        await self._copy(conn, rows)
        ready = list(_runs((id, job) for id, job, due in rows if due is None or due <= now))
        later = [(id, due, job.queue, job.kind, job.priority) for id, job, due in rows if due is not None and due > now]
        await conn.fetchval(self._sql["runs"], *columns(ready, 5), *columns(later, 5))
        return made

    async def _take_keys(self, conn: Any, jobs: Sequence[NewJob], made: list[Enqueued]) -> None:
        keyed = {made[i].id: i for i, job in enumerate(jobs) if job.key is not None}
        if not keyed:
            return
        keys = [jobs[i].key for i in keyed.values()]
        free = {row["id"] for row in await conn.fetch(self._sql["keys"], keys, list(keyed))}
        taken = [i for id, i in keyed.items() if id not in free]
        if taken:
            rows = await conn.fetch(self._sql["held"], [jobs[i].key for i in taken])
            holders = {row["key"]: row["id"] for row in rows}
            for i in taken:
                # 0: its holder ended in this very moment
                made[i] = Enqueued(holders.get(jobs[i].key, 0), False)

    async def _copy(self, conn: Any, rows: list[tuple[int, NewJob, datetime | None]]) -> None:
        lines = b"".join(
            b"%d\t%b\t%b\t%d\t%d\t%b\t%b\t%b\t%b\t%b\t%b\n"
            % (
                id,
                b"\\N" if due is None else due.isoformat().encode(),
                b"\\N" if job.timeout is None else str(job.timeout).encode(),
                job.priority,
                job.max_attempts,
                field(job.queue),
                field(job.kind),
                field(job.key),
                field(job.payload),
                field(job.meta),
                field(job.trace),
            )
            for id, job, due in rows
        )
        if lines:
            await conn.copy_to_table(
                "job", schema_name=self._schema, source=io.BytesIO(lines), columns=COLUMNS, format="text"
            )


def _chunks(jobs: Iterable[NewJob]) -> Iterator[list[NewJob]]:
    rest = iter(jobs)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _due(job: NewJob, now: datetime) -> datetime | None:
    return now + timedelta(seconds=job.delay) if job.delay else job.run_at


def _runs(rows: Iterable[tuple[int, NewJob]]) -> Iterator[tuple[int, int, str, str, int]]:
    """Neighbouring ids of one lane and kind, as (lo, hi, queue, kind, priority).

    >>> [run[:2] for run in _runs((i, NewJob(kind="k")) for i in (1, 2, 3, 5))]
    [(1, 4), (5, 6)]
    """
    numbered = ((id - n, id, job) for n, (id, job) in enumerate(rows))
    for (_, queue, kind, priority), run in groupby(numbered, lambda x: (x[0], x[2].queue, x[2].kind, x[2].priority)):
        ids = [id for _, id, _ in run]
        for lo in range(ids[0], ids[-1] + 1, LONGEST_RUN):
            yield lo, min(lo + LONGEST_RUN, ids[-1] + 1), queue, kind, priority
