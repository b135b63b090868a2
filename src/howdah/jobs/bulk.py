"""Bulk enqueue by COPY in one transaction, with as few rows in ``ready`` as possible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, compress, islice, repeat
from operator import attrgetter
from typing import Any, TypeVar

from howdah.job import Enqueued, NewJob
from howdah.postgres.sql import columns, copy_field, render

T = TypeVar("T")

PIECE = 1000
"""Lines sent at once."""
LONGEST_RUN = 500
"""A run is claimed by one node at a time; short runs are shared by several."""
LANE = ("queue", "kind", "priority")
"""Equal for all jobs of a run."""
CHECKED = (*LANE, "run_at", "delay", "max_attempts", "timeout", "key")
WRITTEN = {
    "run_at": "due",
    "timeout": "timeout",
    "priority": "priority",
    "max_attempts": "max_attempts",
    "queue": "queue",
    "kind": "kind",
    "key": "key",
    "args": "payload",
    "meta": "meta",
    "trace": "trace",
}
"""The columns of the table besides the id, with the attribute written to each."""

_payload, _meta = attrgetter("payload"), attrgetter("meta")
fresh = partial(tuple.__new__, Enqueued)  # Enqueued(...) without the call of its Python constructor


class JobColumns:
    """A chunk of new jobs by column; values that are equal for all are checked and written once."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.size = len(jobs)
        self._shared: dict[str, Any] = {}
        """Values equal for all jobs, by name."""
        self._each: dict[str, Sequence[Any]] = {}
        """Columns of values that differ, by name."""
        self._read(jobs)
        self._check(jobs)
        lanes = self._places_by_lane()
        self._lanes = {lane: len(places) for lane, places in lanes.items()}
        self._order = list(chain.from_iterable(lanes.values())) if len(lanes) > 1 else []
        """The original positions of the jobs, if they were reordered."""
        if self._order:
            self._read([jobs[place] for place in self._order])
        self._ids: list[int] = []
        self._made: list[Enqueued] = []
        self._waits: list[bool] = []
        """Which jobs are not due yet, if any."""

    def number(self, ids: list[int], now: datetime) -> None:
        """Assign the ids and due times."""
        self._ids = ids
        self._made = list(map(fresh, zip(ids, repeat(True), strict=False)))
        self._put("due", [_due(now, *times) for times in self._rows("run_at", "delay")])
        if self._has("due"):
            self._waits = [due is not None and due > now for due in self._column("due")]

    def keys(self) -> dict[int, str]:
        """Return the unique keys by id."""
        asked = self._as_given([*zip(self._ids, self._column("key"), strict=True)]) if self._has("key") else []
        return {id: key for id, key in asked if key is not None}

    def exclude(self, holders: Mapping[int, int]) -> None:
        """Exclude jobs whose key is held by the given job."""
        kept = [id not in holders for id in self._ids]
        self._made = [Enqueued(holders[each.id], False) if each.id in holders else each for each in self._made]
        self._lanes = {lane: sum(kept[rows]) for lane, rows in self._stretches()}
        self._each = {name: [*compress(column, kept)] for name, column in self._each.items()}
        self._waits = [*compress(self._waits, kept)]
        self._ids = [*compress(self._ids, kept)]
        self.size = len(self._ids)

    def columns(self) -> list[str]:
        """Return the columns of the table to write; the others keep their defaults."""
        return ["id", *(column for column, name in WRITTEN.items() if self._has(name))]

    def lines(self) -> Iterator[bytes]:
        """Yield the lines for COPY, many at a time."""
        parts: list[Iterable[bytes]] = [str(self._ids)[1:-1].encode().split(b", ") if self._ids else []]
        common = b""
        for name in filter(self._has, WRITTEN.values()):
            common += b"\t"
            if name in self._shared:
                common += _text(self._shared[name])
            else:
                parts += [repeat(common), _texts(self._each[name])]
                common = b""
        parts.append(repeat(common + b"\n"))
        fragments = chain.from_iterable(zip(*parts, strict=False))
        while some := b"".join(islice(fragments, PIECE * len(parts))):
            yield some

    def ready(self) -> Iterator[tuple[int, int, str, str, int]]:
        """Yield the runs of jobs that are due: (lo, hi, queue, kind, priority)."""
        for lane, rows in self._stretches():
            ids = self._ids[rows]
            if self._waits:
                ids = [id for id, wait in zip(ids, self._waits[rows], strict=True) if not wait]
            yield from _runs(ids, *lane)

    def later(self) -> Iterator[tuple[int, datetime, str, str, int]]:
        """Yield the jobs that are not due yet: (id, due, queue, kind, priority)."""
        if self._waits:
            due = [*self._column("due")]
            for lane, rows in self._stretches():
                waiting = compress(zip(self._ids[rows], due[rows], strict=True), self._waits[rows])
                yield from ((id, moment, *lane) for id, moment in waiting)

    def made(self) -> list[Enqueued]:
        """Return the results in the order of the jobs."""
        return self._as_given(self._made)

    def _read(self, jobs: Sequence[NewJob]) -> None:
        for name in NewJob.__struct_fields__:  # by column: thousands of tuples burden the garbage collector
            self._put(name, list(map(attrgetter(name), jobs)))

    def _check(self, jobs: Sequence[NewJob]) -> None:
        differ = [name for name in CHECKED if name in self._each]
        for job in dict(zip(self._rows(*differ), jobs, strict=False)).values():
            job.check()

    def _places_by_lane(self) -> dict[tuple[Any, ...], Sequence[int]]:
        if self._shares(*LANE):
            return dict.fromkeys(self._rows(*LANE), range(self.size))
        lanes: dict[tuple[Any, ...], list[int]] = {}
        for place, lane in enumerate(self._rows(*LANE)):
            lanes.setdefault(lane, []).append(place)
        return {**lanes}

    def _stretches(self) -> Iterator[tuple[tuple[Any, ...], slice]]:
        """Return the positions of the jobs by lane."""
        start = 0
        for lane, size in self._lanes.items():
            yield lane, slice(start, start + size)
            start += size

    def _as_given(self, rows: list[T]) -> list[T]:
        """Return values in the original order of the jobs."""
        if not self._order:
            return rows
        given = rows.copy()
        for place, row in zip(self._order, rows, strict=True):
            given[place] = row
        return given

    def _put(self, name: str, column: Sequence[Any]) -> None:
        if column.count(column[0]) == len(column):
            self._shared[name] = column[0]
        else:
            self._each[name] = column

    def _has(self, name: str) -> bool:
        return name in self._each or self._shared[name] is not None

    def _shares(self, *names: str) -> bool:
        return all(name in self._shared for name in names)

    def _column(self, name: str) -> Iterable[Any]:
        return self._each[name] if name in self._each else repeat(self._shared[name], self.size)

    def _rows(self, *names: str) -> Iterable[tuple[Any, ...]]:
        """Yield these columns row by row; a single row if they are equal for all."""
        if self._shares(*names):
            return [tuple(self._shared[name] for name in names)]
        return zip(*map(self._column, names), strict=True)


def _due(now: datetime, run_at: datetime | None, delay: float | None) -> datetime | None:
    return now + timedelta(seconds=delay) if delay else run_at


def _texts(values: Sequence[Any]) -> Sequence[bytes]:
    """Return a column as text for COPY."""
    if isinstance(values[0], bytes) and None not in values:
        together = b"".join(values)
        if not any(each in together for each in (b"\\", b"\t", b"\n", b"\r")):
            return values
    known = {value: _text(value) for value in set(values)}
    return [known[value] for value in values]


def _text(value: Any) -> bytes:
    if isinstance(value, datetime):
        return value.isoformat().encode()
    if isinstance(value, int):
        return b"%d" % value
    return str(value).encode() if isinstance(value, float) else copy_field(value)


def _runs(ids: Sequence[int], queue: str, kind: str, priority: int) -> Iterator[tuple[int, int, str, str, int]]:
    """Yield consecutive ids of one lane as (lo, hi, queue, kind, priority).

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


CHUNK = 2500
CHUNK_BYTES = 8_000_000
"""Bytes of arguments and metadata of a chunk: it is in memory several times, and sent within the command timeout."""
STEP = 25
"""Jobs taken from the iterable at once; a chunk has at most so many jobs more than fit into its bytes."""


def size_of(jobs: Sequence[NewJob]) -> int:
    """Return the bytes of the arguments and metadata of jobs."""
    return sum(map(len, map(_payload, jobs))) + sum(map(len, filter(None, map(_meta, jobs))))


class BulkEnqueue:
    """Enqueues many jobs on one connection, whatever codecs are set on it."""

    def __init__(self, schema: str, sql: Mapping[str, str]) -> None:
        self._schema = schema
        self._sql = sql
        self._reserve = render("select lo, hi, clock_timestamp() as now from {schema}.reserve($1)", {"schema": schema})

    async def enqueue(self, conn: Any, jobs: Iterable[NewJob], lock_timeout: str | None = None) -> list[Enqueued]:
        """Enqueue all jobs or none; return the results in order.

        ``lock_timeout``: for a key that another open transaction holds; ``None``: that of the caller's session.
        """
        made: list[Enqueued] = []
        rest = iter(jobs)
        chunk, more = await _take(rest)
        async with conn.transaction():
            while more:
                sending = asyncio.create_task(self._send(conn, JobColumns(chunk), lock_timeout))
                try:
                    chunk, more = await _take(rest)  # while the server executes the chunk before
                except BaseException:
                    sending.cancel()
                    await asyncio.wait([sending])
                    raise
                made += await sending
            if chunk:
                made += await self._send(conn, JobColumns(chunk), lock_timeout)
        return made

    async def _send(self, conn: Any, jobs: JobColumns, lock_timeout: str | None) -> list[Enqueued]:
        spans = await conn.fetch(self._reserve, jobs.size)
        jobs.number([*chain.from_iterable(range(span["lo"], span["hi"]) for span in spans)], spans[0]["now"])
        await self._take_keys(conn, jobs, lock_timeout)
        if jobs.size:
            await conn.copy_to_table(
                "job", schema_name=self._schema, source=_as_sent(jobs.lines()), columns=jobs.columns(), format="text"
            )
        await conn.fetchval(self._sql["insert_runs"], *columns([*jobs.ready()], 5), *columns([*jobs.later()], 5))
        return jobs.made()

    async def _take_keys(self, conn: Any, jobs: JobColumns, lock_timeout: str | None) -> None:
        keys = jobs.keys()
        if keys:
            rows = await conn.fetch(self._sql["take_keys"], list(keys.values()), list(keys), lock_timeout)
            if taken := {row["id"]: row["holder"] for row in rows if row["id"] != row["holder"]}:
                jobs.exclude(taken)


async def _as_sent(lines: Iterable[bytes]) -> AsyncIterator[bytes]:
    for some in lines:
        yield some
        await asyncio.sleep(0)  # lets the event loop send these lines


async def _take(rest: Iterator[NewJob]) -> tuple[list[NewJob], bool]:
    """Return the next chunk, and whether more may follow; with pauses, so that the previous one is sent meanwhile."""
    chunk: list[NewJob] = []
    room = CHUNK_BYTES
    while len(chunk) < CHUNK and room > 0:
        some = list(islice(rest, STEP))
        chunk += some
        if len(some) < STEP:
            return chunk, False
        room -= size_of(some)
        if len(chunk) % (10 * STEP) == 0:
            await asyncio.sleep(0)
    return chunk, True
