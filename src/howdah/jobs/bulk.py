"""Bulk: many jobs by COPY, in one transaction, as few runs as possible."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from howdah.jobs.new import Enqueued, NewJob
from howdah.pg.copy import field
from howdah.pg.database import columns
from howdah.pg.sql import render

CHUNK = 5000
STEP = 250
"""Jobs that are made before what is on its way is looked after."""
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
NEEDS_ESCAPE = re.compile(rb"[\\\t\n\r]")
NOT_YET = Enqueued(0, True)

fresh = partial(tuple.__new__, Enqueued)  # what Enqueued(...) does, without its detour through Python
_shape = attrgetter("queue", "kind", "priority", "run_at", "delay", "max_attempts", "timeout", "key", "meta", "trace")
_lane = attrgetter("queue", "kind", "priority")


class Bulk:
    """Enqueues many jobs through one connection, whatever codecs its owner has set on it."""

    def __init__(self, schema: str, sql: Mapping[str, str]) -> None:
        self._schema = schema
        self._sql = sql
        self._reserve = render("select lo, hi, clock_timestamp() as now from {schema}.reserve($1)", {"schema": schema})

    async def enqueue(self, conn: Any, jobs: Iterable[NewJob]) -> list[Enqueued]:
        """Enqueue all of them or none; returns what became of each, in order."""
        made: list[Enqueued] = []
        rest = iter(jobs)
        chunk = list(islice(rest, CHUNK))
        async with conn.transaction():
            while len(chunk) == CHUNK:
                sending = asyncio.create_task(self._chunk(conn, chunk))
                try:
                    chunk = await _more(rest)  # made while the server is at work
                except BaseException:
                    sending.cancel()
                    await asyncio.wait([sending])
                    raise
                made += await sending
            if chunk:
                made += await self._chunk(conn, chunk)
        return made

    async def _chunk(self, conn: Any, jobs: list[NewJob]) -> list[Enqueued]:
        forms, lanes = _sort(jobs)
        spans = await conn.fetch(self._reserve, len(jobs))
        now: datetime = spans[0]["now"]
        for form in set(forms):
            form.write(now)
        # neighbours in a lane get neighbouring ids, whatever order they came in
        order = [i for lane in lanes.values() for i in lane]
        made = [NOT_YET] * len(jobs)
        for i, id in zip(order, chain.from_iterable(range(span["lo"], span["hi"]) for span in spans), strict=True):
            made[i] = fresh((id, True))
        await self._take_keys(conn, jobs, made)
        await self._copy(conn, [(made[i].id, forms[i], jobs[i]) for i in order if made[i].fresh])
        ready: list[tuple[Any, ...]] = []
        later: list[tuple[Any, ...]] = []
        for lane in lanes.values():
            ready += _runs([made[i].id for i in lane if made[i].fresh and not forms[i].later], *_lane(jobs[lane[0]]))
            later += [(made[i].id, forms[i].due, *_lane(jobs[i])) for i in lane if made[i].fresh and forms[i].later]
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

    async def _copy(self, conn: Any, rows: list[tuple[int, Form, NewJob]]) -> None:
        if not rows:
            return
        if NEEDS_ESCAPE.search(b"".join([job.payload for _, _, job in rows])):
            lines = [b"%d%b%b%b" % (id, form.before, field(job.payload), form.after) for id, form, job in rows]
        else:
            lines = [b"%d%b%b%b" % (id, form.before, job.payload, form.after) for id, form, job in rows]
        source = io.BytesIO(b"".join(lines))
        await conn.copy_to_table("job", schema_name=self._schema, source=source, columns=COLUMNS, format="text")


class Form:
    """What jobs have in common that differ in their arguments only: the rest of their line."""

    __slots__ = ("_job", "after", "before", "due", "lane", "later")

    def __init__(self, job: NewJob, lane: list[int]) -> None:
        job.check()
        self._job = job
        self.lane = lane
        """The places of all jobs of its lane and kind."""
        self.due: datetime | None = None
        self.later = False

    def write(self, now: datetime) -> None:
        """Put together what stands before and after the arguments."""
        job = self._job
        self.due = now + timedelta(seconds=job.delay) if job.delay else job.run_at
        self.later = self.due is not None and self.due > now
        self.before = b"\t%b\t%b\t%d\t%d\t%b\t%b\t%b\t" % (
            b"\\N" if self.due is None else self.due.isoformat().encode(),
            b"\\N" if job.timeout is None else str(job.timeout).encode(),
            job.priority,
            job.max_attempts,
            field(job.queue),
            field(job.kind),
            field(job.key),
        )
        self.after = b"\t%b\t%b\n" % (field(job.meta), field(job.trace))


def _sort(jobs: list[NewJob]) -> tuple[list[Form], dict[Any, list[int]]]:
    """The form of each, checked, and the places of the jobs of every lane and kind."""
    known: dict[Any, Form] = {}
    lanes: dict[Any, list[int]] = {}
    forms = []
    for i, job in enumerate(jobs):
        shape = _shape(job)
        form = known.get(shape)
        if form is None:
            form = known[shape] = Form(job, lanes.setdefault(_lane(job), []))
        form.lane.append(i)
        forms.append(form)
    return forms, lanes


async def _more(rest: Iterator[NewJob]) -> list[NewJob]:
    """The next chunk, taken in steps, so that the one before it is sent meanwhile."""
    chunk: list[NewJob] = []
    while len(chunk) < CHUNK and (some := list(islice(rest, STEP))):
        chunk += some
        await asyncio.sleep(0)
    return chunk


def _runs(ids: list[int], queue: str, kind: str, priority: int) -> Iterator[tuple[int, int, str, str, int]]:
    """Neighbouring ids of one lane and kind, as (lo, hi, queue, kind, priority).

    >>> [run[:2] for run in _runs([1, 2, 3, 5], "default", "k", 0)]
    [(1, 4), (5, 6)]
    """
    first = 0
    while first < len(ids):
        last = len(ids) - 1
        if ids[last] - ids[first] != last - first:  # there are gaps
            last = next(i for i in range(first, len(ids)) if i == last or ids[i + 1] != ids[i] + 1)
        for lo in range(ids[first], ids[last] + 1, LONGEST_RUN):
            yield lo, min(lo + LONGEST_RUN, ids[last] + 1), queue, kind, priority
        first = last + 1
