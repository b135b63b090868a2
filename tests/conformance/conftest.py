"""Every kind of store under one roof: how to fill it and how to make its leases run out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from howdah import Howdah
from howdah.jobs.store import JobStore
from howdah.outcome import Outcome
from howdah.store import Store
from howdah.table.plan import Plan
from howdah.table.store import TableStore
from table.ground import ddl


class Ground(Protocol):
    """What the suite needs besides the store itself."""

    async def store(self, node: int) -> Store: ...

    async def put(self, count: int) -> None: ...

    async def expire(self) -> None: ...

    async def reset(self, store: Any) -> int: ...

    async def states(self) -> list[str]: ...

    async def resets(self) -> int: ...


@dataclass
class JobGround:
    app: Howdah
    database: Any
    conn: Any
    pool: Any

    async def store(self, node: int) -> JobStore:
        return JobStore(
            self.database, node, kinds=["work"], queues=None, lease=30.0, poll=1, notify=False, pool=self.pool
        )

    async def put(self, count: int) -> None:
        task = self.app.tasks.get("work")
        if task is None:

            @self.app.task(max_attempts=3)
            async def work() -> None: ...

            task = work
        for _ in range(count):
            await task.enqueue()

    async def expire(self) -> None:
        await self.conn.execute("update howdah.lease set expires_at = now() - interval '1 second'")

    async def reset(self, store: JobStore) -> int:
        store._watermarks.clear()
        _, requeued, ended = await store.reset()
        return requeued + ended

    async def states(self) -> list[str]:
        return [row[0] for row in await self.conn.fetch("select state from howdah.jobs order by id")]

    async def resets(self) -> int:
        return int(await self.conn.fetchval("select coalesce(sum(resets), 0) from howdah.jobs"))


WORDS = {"processing": "running", "errored": "queued", "completed": "done", "canceled": "cancelled"}


@dataclass
class TableGround:
    app: Howdah
    database: Any
    conn: Any
    pool: Any

    async def store(self, node: int) -> TableStore:
        table = self.app.tables.get("uploads") or self.app.table("uploads")
        return TableStore(self.database, await Plan.make(self.conn, table.options, "howdah"), pool=self.pool)

    async def put(self, count: int) -> None:
        await self.conn.execute("insert into uploads (n) select generate_series(1, $1::int)", count)

    async def expire(self) -> None:
        await self.conn.execute("update uploads set last_heartbeat_at = now() - interval '1 hour'")

    async def reset(self, store: TableStore) -> int:
        return sum(await store.reset(100))

    async def states(self) -> list[str]:
        rows = await self.conn.fetch("select state from uploads order by id")
        return [WORDS.get(row[0], row[0]) for row in rows]

    async def resets(self) -> int:
        return int(await self.conn.fetchval("select coalesce(sum(num_resets), 0) from uploads"))


@pytest.fixture(params=["jobs", "table"])
async def ground(request: Any, app: Howdah, database: Any, conn: Any) -> AsyncIterator[Any]:
    """The place a store works on."""
    pool = await database.pool(4)
    await conn.execute(ddl(extra="n int"))
    made = (JobGround if request.param == "jobs" else TableGround)(app, database, conn, pool)
    stores = []
    plain = made.store

    async def store(node: int) -> Store:
        stores.append(await plain(node))
        return stores[-1]

    made.store = store  # type: ignore[method-assign]
    yield made
    for each in stores:
        await each.close()
    await app.close()
    pool.terminate()


OUTCOMES = {
    Outcome.OK: "done",
    Outcome.FAILED: "failed",
    Outcome.POISON: "failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.RETRY: "queued",
    Outcome.SNOOZED: "queued",
    Outcome.RELEASED: "queued",
}
