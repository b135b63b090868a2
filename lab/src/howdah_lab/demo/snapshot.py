"""Reads from the database what the demo shows, and checks at the end that nothing was lost or done twice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from howdah.events.admin import ConsumerRow, LogStatus
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah_lab.demo import app as shop

POISONED = ["import_row"]
"""Kinds that fail on purpose."""
UNTIMED = ["await_stock", "count_click"]
"""Kinds left out of the wait times: the first snoozes, the second is enqueued by the thousand."""
RECENT = 3000
"""Number of ids over which wait times are measured."""
SETTLE = 15.0
"""Seconds after which no transaction of the demo is still open."""
MINUTE = 60


@dataclass(slots=True)
class DemoTotals:
    """Numbers of jobs by outcome so far."""

    enqueued: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0

    def plus(self, row: Any) -> DemoTotals:
        """Return the sum of these totals and those of a row."""
        return DemoTotals(
            self.enqueued + row["enqueued"],
            self.done + row["done"],
            self.failed + row["failed"],
            self.retried + row["retried"],
        )


@dataclass(slots=True)
class DemoSnapshot:
    """One snapshot of the database."""

    totals: DemoTotals = field(default_factory=DemoTotals)
    median: float | None = None
    slowest: float | None = None
    queues: list[Any] = field(default_factory=list)
    running: list[Any] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    next: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    consumers: Sequence[ConsumerRow] = ()
    log: LogStatus | None = None

    @property
    def lag(self) -> int:
        """Lag of the slowest consumer, in positions."""
        return max((consumer.lag for consumer in self.consumers), default=0)

    @property
    def idle(self) -> bool:
        """True if no job is queued or running and no event is left to consume."""
        return not (self.waiting or self.in_flight or self.lag)

    @property
    def in_flight(self) -> int:
        """Jobs under lease."""
        return self.running[0]["total"] if self.running else 0

    @property
    def waiting(self) -> int:
        """Jobs that could run now."""
        return sum(queue["ready"] for queue in self.queues)

    @property
    def ahead(self) -> int:
        """Jobs not due yet."""
        return sum(queue["later"] for queue in self.queues)


@dataclass(frozen=True, slots=True)
class DemoCheck:
    """Result of the final check."""

    facts: dict[str, int]
    lost: int
    doubled: int
    astray: int
    """Rows of read models that differ from the events of the log, and orders that differ from their events."""
    acts: int = 0
    """Actions of users on the dashboard, which change the expected numbers."""

    @property
    def unexpected(self) -> int:
        """Jobs, rows and consumers that failed and should not have."""
        facts = self.facts
        return facts["failed"] - facts["on_purpose"] + facts["refused"] - facts["empty"] + facts["halted"]

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.astray or (self.unexpected and not self.acts))


class DemoDatabase:
    """Reads the state from the database; a read stays cheap however long the demo runs."""

    def __init__(self, database: Database, shop: str) -> None:
        self._session = Session(database, "demo")
        self._sql = sql.load("howdah_lab.demo", schema=database.schema, shop=shop)
        self._settled = DemoTotals()
        self._frontier = 1
        self._heads: deque[tuple[float, int]] = deque()
        self.rates: deque[float] = deque(maxlen=MINUTE)
        """Jobs done per second, one entry for every second of the last minute."""
        self._rated = (time.monotonic(), 0)

    async def create_tables(self) -> None:
        """Create the tables of the demo's application."""
        async with self._session.use() as conn:
            await conn.execute(self._sql["open"])

    async def snapshot(self) -> DemoSnapshot:
        """Read everything the screen shows."""
        frontier, head = await self._session.fetchrow(self._sql["frontier"])
        await self._settle(min(frontier, self._settled_head(head)))
        totals = self._settled.plus(await self._session.fetchrow(self._sql["count"], self._frontier, head))
        self._rate(totals.done)
        median, slowest = await self._waits(head - RECENT)
        return DemoSnapshot(
            totals,
            median,
            slowest,
            queues=await self._session.fetch(self._sql["queues"]),
            running=await self._session.fetch(self._sql["running"], 12),
            failures=await self._session.fetch(self._sql["failures"], head - 20 * RECENT, 5),
            next=await self._session.fetch(self._sql["next"], 5),
            nodes=await self.nodes(),
            consumers=await shop.app.log.admin.consumers(),
            log=await shop.app.log.admin.status(),
        )

    async def nodes(self) -> list[Any]:
        """Return the registered nodes."""
        return await self._session.fetch(self._sql["nodes"])

    async def check(self, enqueued: int, photographed: int = 0) -> DemoCheck:
        """Compare the tables with the jobs and rows that the producers created."""
        row = await self._session.fetchrow(self._sql["check"], POISONED, timeout=60)
        folded = await self._session.fetchrow(self._sql["fold"], timeout=60)
        rows = await self._session.fetchrow(self._sql["photos"], timeout=60)
        acts = await self._session.fetchval(self._sql["acts"])
        facts = {**row, **folded, **{name: rows[name] for name in ("rows", "developed", "refused", "empty", "waiting")}}
        if acts:  # only checks that hold whatever users did on the dashboard
            return DemoCheck(facts, lost=row["lost"], doubled=row["doubled"], astray=0, acts=acts)
        missing = abs(enqueued + row["charged"] + folded["receipts"] + row["slots"] - row["jobs"])
        unpaid = abs(row["charges"] - row["charged"]) + abs(row["ships"] - row["charged"])
        unsent = abs(row["mailed"] - folded["receipts"])
        undeveloped = rows["lost"] + abs(rows["rows"] - photographed)
        return DemoCheck(
            facts,
            lost=row["lost"] + missing + unpaid + unsent + undeveloped,
            doubled=row["doubled"] + row["twice"] + row["slots_twice"] + rows["doubled"],
            astray=folded["astray"] + folded["unsaid"],
        )

    async def waits(self) -> tuple[float | None, float | None]:
        """The median and the 99th percentile of all waits, in seconds."""
        return await self._waits(0)

    async def drop_tables(self) -> None:
        """Drop everything the demo created."""
        async with self._session.use() as conn:
            await conn.execute(self._sql["close"], timeout=60)

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def _waits(self, lowest: int) -> tuple[float | None, float | None]:
        found = await self._session.fetchval(self._sql["waits"], max(0, lowest), UNTIMED, timeout=60)
        return tuple(found) if found else (None, None)

    async def _settle(self, frontier: int) -> None:
        """Add up the jobs below the frontier, which are finished, once and for all."""
        if frontier > self._frontier:
            row = await self._session.fetchrow(self._sql["count"], self._frontier, frontier, timeout=60)
            self._settled, self._frontier = self._settled.plus(row), frontier

    def _settled_head(self, head: int) -> int:
        """The next id as it was some time ago: all ids below it are committed or will never be."""
        now = time.monotonic()
        self._heads.append((now, head))
        while len(self._heads) > 1 and self._heads[1][0] < now - SETTLE:
            self._heads.popleft()
        at, settled = self._heads[0]
        return settled if at < now - SETTLE else 1

    def _rate(self, done: int) -> None:
        since, before = self._rated
        if (passed := time.monotonic() - since) >= 1:
            self.rates.append((done - before) / passed)
            self._rated = (time.monotonic(), done)
