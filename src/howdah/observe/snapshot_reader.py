"""Reads snapshots of one database repeatedly, for `howdah top` and the dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg

from howdah.observe.rates import Finished, RateTracker, together
from howdah.observe.sampler import Counting
from howdah.observe.snapshot import ConsumerSnapshot, NodeSnapshot, QueueSnapshot, RunningJob, Snapshot, Totals
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, Database, Session

PATIENCE = 3.0
"""Timeout of each part of a snapshot, in seconds."""
DEAD = 30.0
"""Seconds after which a silent node counts as dead."""
MINUTES = 60
MOST_NODES = 1000
MOST_RUNNING = 50
BOUNDED = """
select clock_timestamp(), set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
    set_config('jit', 'off', true)
"""

TABLE = "table "

Rows = Sequence[Any]


class SnapshotReader:
    """Reads one database over one connection, which heals itself; never looks at history.

    Keeps what it needs to say how fast things go, so have one and read it again and again: the rates of a first
    reading are means over a minute or two. ``tables`` says how tables of the application's are counted.
    """

    def __init__(
        self, database: Database, *, tables: Callable[[], Sequence[Counting]] = tuple, dead: float = DEAD
    ) -> None:
        self._session = Session(database, "pulse")
        self._sql = sql.load("howdah.observe", schema=database.schema)
        self._tables = tables
        self._dead = dead
        self._flows = RateTracker()
        self._turn = asyncio.Lock()
        self._last: tuple[float, Snapshot] | None = None

    async def read(self, *, within: float = 0.0) -> Snapshot:
        """Return a snapshot; one that was read ``within`` seconds is reused.

        Raises what went wrong; the next call starts anew. What takes too long is left out, and named.
        """
        async with self._turn:
            if self._last is None or time.monotonic() - self._last[0] > within:
                reading = await self._read()
                self._last = (time.monotonic(), reading)
            return self._last[1]

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def _read(self) -> Snapshot:
        found: dict[str, Rows] = {}
        at, late = await self._fetch(found)
        if "minutes" in found:
            self._flows.add(at, [Finished(row[0], row[1], row[2:5]) for row in found["minutes"]])
        queues = self._queues(found)
        return Snapshot(
            at=at,
            totals=_totals(queues),
            queues=queues,
            nodes=[NodeSnapshot(**row) for row in found.get("nodes", ())],
            running=[RunningJob(**row) for row in found.get("running", ())],
            consumers=[_consumer(row) for row in found.get("consumers", ())],
            minutes=self._flows.minutes(MINUTES),
            late=late,
        )

    async def _fetch(self, found: dict[str, Rows]) -> tuple[datetime, list[str]]:
        """Read part by part; one that takes too long ends the transaction it is in, and the rest has another."""
        parts, late, at = self._parts(found), [], None
        part: tuple[str, str, Sequence[Any]] | None = next(parts)
        while part is not None:
            async with self._look() as (conn, now):
                at = at or now
                while part is not None:
                    name, statement, values = part
                    try:
                        found[name] = await conn.fetch(statement, *values)
                    except asyncpg.PostgresError as error:
                        if not _bearable(error, name):
                            raise
                        late.append(name)
                    part = next(parts, None)
                    if name in late:
                        break
        assert at is not None
        return at, late

    def _parts(self, found: Mapping[str, Rows]) -> Iterator[tuple[str, str, Sequence[Any]]]:
        """Return the sections to read: name, statement and values."""
        yield "minutes", self._sql["minutes"], [MINUTES]
        yield "queues", self._sql["depth"], []
        yield "paused", self._sql["paused"], []
        yield "nodes", self._sql["nodes"], [MOST_NODES]
        yield "running", self._sql["running"], [MOST_RUNNING]
        for name, statement, values in self._tables():
            yield TABLE + name, statement, values
        yield "consumed", self._sql["consumed"], []
        if found.get("consumed") and found["consumed"][0]["consumed"]:
            yield "log", self._sql["log"], []
            if "log" in found:
                yield "consumers", self._sql["lag"], [found["log"][0]["head"], self._dead]

    @asynccontextmanager
    async def _look(self) -> AsyncIterator[tuple[Any, datetime]]:
        """A connection that gives up in time, and what its clock says."""
        async with self._session.use() as conn, conn.transaction(readonly=True):
            yield conn, await conn.fetchval(BOUNDED, str(int(PATIENCE * 1000)))

    def _queues(self, found: Mapping[str, Rows]) -> list[QueueSnapshot]:
        tables = {name: found.get(TABLE + name) for name, _, _ in self._tables()}
        counted = {row["queue"]: row[1:5] for row in found.get("queues", ())}
        counted |= {name: rows[0][:4] for name, rows in tables.items() if rows}
        paused = {row["name"]: row["paused_by"] for row in found.get("paused", ())}
        queues = []
        for name in sorted({*counted, *paused, *tables, *self._flows.queues}):
            # whatever had a job once is counted, so what only finished is a table
            table = name in tables or ("queues" in found and name not in counted and name not in paused)
            unknown = (None,) * 4 if table or "queues" not in found else (0, 0, 0, None)
            queued, scheduled, running, oldest = counted.get(name, unknown)
            queues.append(
                QueueSnapshot(
                    name=name,
                    table=table,
                    queued=queued,
                    scheduled=scheduled,
                    running=running,
                    oldest_age=oldest,
                    paused=name in paused,
                    paused_by=paused.get(name) or None,
                    **self._flows.of(name),
                )
            )
        return queues


def _bearable(error: Exception, part: str) -> bool:
    """True if the rest can be read all the same: it took too long, or a table of the application's has changed."""
    if isinstance(error, asyncpg.QueryCanceledError):
        return True
    return part.startswith(TABLE) and not isinstance(error, BROKEN)


def _totals(queues: Sequence[QueueSnapshot]) -> Totals:
    return Totals(
        queued=sum(queue.queued or 0 for queue in queues),
        scheduled=sum(queue.scheduled or 0 for queue in queues),
        running=sum(queue.running or 0 for queue in queues),
        done=together([queue.done for queue in queues]),
        failed=together([queue.failed for queue in queues]),
        retried=together([queue.retried for queue in queues]),
    )


def _consumer(row: Any) -> ConsumerSnapshot:
    states = {"halted": row["halted"], "paused": row["paused"], "unassigned": row["unassigned"]}
    return ConsumerSnapshot(
        name=row["name"],
        state=next((name for name, true in states.items() if true), "running"),
        lag=row["events"],
        lag_seconds=row["seconds"],
        parked=row["parked"],
    )
