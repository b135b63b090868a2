"""Snapshots of one database for `howdah top` and the dashboard: queues, nodes, running jobs and consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from howdah.observe.rates import Finished, Minute, Rates, RateTracker, sum_rates
from howdah.observe.sampler import Counting
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, Database, Session

SECTION_TIMEOUT = 3.0
"""Timeout of each section of a snapshot, in seconds."""
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


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, or one table of the application's."""

    name: str
    table: bool = False
    """True if it is a table that jobs of the application come from."""
    queued: int | None = 0
    """Due now; ``None``: a table that was not counted, since its app is not known here."""
    scheduled: int | None = 0
    """Not due yet, or waiting to retry."""
    running: int | None = 0
    oldest_age: float | None = None
    """Seconds the first in line has waited."""
    paused: bool = False
    paused_by: str | None = None
    done: Rates = Rates()
    failed: Rates = Rates()
    retried: Rates = Rates()


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One process that works here."""

    id: int
    name: str
    state: str
    version: str
    remote: bool
    """True if it works over HTTP."""
    deaf: bool
    """True if wake-ups do not arrive, and it polls."""
    slots: int
    running: int
    age: float
    """Seconds since it started."""
    beat_age: float
    """Seconds since its last heartbeat, by the server's clock."""


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job under lease."""

    id: int
    kind: str
    queue: str
    attempt: int
    node: int
    node_name: str | None
    seconds: float
    """Since it was claimed."""
    share: float | None
    """Progress from 0 to 1, if reported."""
    note: str | None


class ConsumerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of the event log, with the state of its worst partition."""

    name: str
    state: str
    """halted, paused, unassigned or running."""
    lag: int
    """Positions it has not passed yet."""
    lag_seconds: float
    """Age of the oldest event it has not seen."""
    parked: int


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together."""

    queued: int
    scheduled: int
    running: int
    done: Rates
    failed: Rates
    retried: Rates


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of everything, by the server's clock."""

    at: datetime
    totals: Totals
    queues: Sequence[QueueSnapshot]
    nodes: Sequence[NodeSnapshot]
    running: Sequence[RunningJob]
    """The longest-running jobs, the oldest first."""
    consumers: Sequence[ConsumerSnapshot]
    minutes: Sequence[Minute]
    """The last hour, oldest first; the last one is incomplete."""
    late: Sequence[str] = ()
    """Sections that could not be read in time."""


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
        self._rates = RateTracker()
        self._reading = asyncio.Lock()
        self._last: tuple[float, Snapshot] | None = None

    async def read(self, *, within: float = 0.0) -> Snapshot:
        """Return a snapshot; one that was read ``within`` seconds is reused.

        Raises what went wrong; the next call starts anew. What takes too long is left out, and named.
        """
        async with self._reading:
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
            self._rates.add(at, [Finished(row[0], row[1], row[2:5]) for row in found["minutes"]])
        queues = self._queues(found)
        return Snapshot(
            at=at,
            totals=_totals(queues),
            queues=queues,
            nodes=[NodeSnapshot(**row) for row in found.get("nodes", ())],
            running=[RunningJob(**row) for row in found.get("running", ())],
            consumers=[_consumer(row) for row in found.get("consumers", ())],
            minutes=self._rates.minutes(MINUTES),
            late=late,
        )

    async def _fetch(self, found: dict[str, Rows]) -> tuple[datetime, list[str]]:
        """Read part by part; one that takes too long ends the transaction it is in, and the rest has another."""
        parts, late, at = self._parts(found), [], None
        part: tuple[str, str, Sequence[Any]] | None = next(parts)
        while part is not None:
            async with self._transaction() as (conn, now):
                at = at or now
                while part is not None:
                    name, statement, values = part
                    try:
                        found[name] = await conn.fetch(statement, *values)
                    except asyncpg.PostgresError as error:
                        if not _skippable(error, name):
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
    async def _transaction(self) -> AsyncIterator[tuple[Any, datetime]]:
        """A read-only transaction with a statement timeout, and the server's time."""
        async with self._session.use() as conn, conn.transaction(readonly=True):
            yield conn, await conn.fetchval(BOUNDED, str(int(SECTION_TIMEOUT * 1000)))

    def _queues(self, found: Mapping[str, Rows]) -> list[QueueSnapshot]:
        tables = {name: found.get(TABLE + name) for name, _, _ in self._tables()}
        counted = {row["queue"]: row[1:5] for row in found.get("queues", ())}
        counted |= {name: rows[0][:4] for name, rows in tables.items() if rows}
        paused = {row["name"]: row["paused_by"] for row in found.get("paused", ())}
        queues = []
        for name in sorted({*counted, *paused, *tables, *self._rates.queues}):
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
                    **self._rates.of(name),
                )
            )
        return queues


def _skippable(error: Exception, part: str) -> bool:
    """True if the other sections can still be read: this one took too long, or its table has changed."""
    if isinstance(error, asyncpg.QueryCanceledError):
        return True
    return part.startswith(TABLE) and not isinstance(error, BROKEN)


def _totals(queues: Sequence[QueueSnapshot]) -> Totals:
    return Totals(
        queued=sum(queue.queued or 0 for queue in queues),
        scheduled=sum(queue.scheduled or 0 for queue in queues),
        running=sum(queue.running or 0 for queue in queues),
        done=sum_rates([queue.done for queue in queues]),
        failed=sum_rates([queue.failed for queue in queues]),
        retried=sum_rates([queue.retried for queue in queues]),
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
