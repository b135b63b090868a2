"""Every kind of store under one roof: how to fill it and how to make its leases run out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import Howdah
from howdah.jobs.store import JobStore
from howdah.outcome import Outcome
from howdah.remote.client import ControlPlaneClient
from howdah.remote.messages import RegisterRequest
from howdah.remote.store import RemoteStore
from howdah.store import Store
from howdah.table.plan import TablePlan
from howdah.table.store import TableStore
from table.ddl import ddl


class StoreSetup(Protocol):
    """What the suite needs besides the store itself."""

    transactions: bool
    """Whether its stores have them; a worker without a database has none."""

    async def store(self, node: int) -> Store: ...

    async def put(self, count: int) -> None: ...

    async def expire(self) -> None: ...

    async def reset(self, store: Any) -> int: ...

    async def states(self) -> list[str]: ...

    async def resets(self) -> int: ...


@dataclass
class JobSetup:
    transactions: ClassVar[bool] = True
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
        store.forget()
        _, requeued, ended = await store.reset()
        return requeued + ended

    async def states(self) -> list[str]:
        return [row[0] for row in await self.conn.fetch("select state from howdah.jobs order by id")]

    async def resets(self) -> int:
        return int(await self.conn.fetchval("select coalesce(sum(resets), 0) from howdah.jobs"))


WORDS = {"processing": "running", "errored": "queued", "completed": "done", "canceled": "cancelled"}


@dataclass
class TableSetup:
    transactions: ClassVar[bool] = True
    app: Howdah
    database: Any
    conn: Any
    pool: Any

    async def store(self, node: int) -> TableStore:
        table = self.app.tables.get("uploads") or self.app.table("uploads")
        return TableStore(self.database, await TablePlan.make(self.conn, table.options, "howdah"), pool=self.pool)

    async def put(self, count: int) -> None:
        await self.conn.execute("insert into uploads (n) select generate_series(1, $1::int)", count)

    async def expire(self) -> None:
        await self.conn.execute("update uploads set last_heartbeat_at = 'epoch'")

    async def reset(self, store: TableStore) -> int:
        return sum(await store.reset(100))

    async def states(self) -> list[str]:
        rows = await self.conn.fetch("select state from uploads order by id")
        return [WORDS.get(row[0], row[0]) for row in rows]

    async def resets(self) -> int:
        return int(await self.conn.fetchval("select coalesce(sum(num_resets), 0) from uploads"))


class Member:
    """A worker that registered at a control plane."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self.client = client

    async def register_again(self, stale: int) -> None:
        raise AssertionError(f"the control plane does not know worker {stale}")

    def asked_to_drain(self) -> None:
        raise AssertionError("nobody asked for it")


class OverHttp(RemoteStore):
    """A store with a client of its own."""

    async def close(self) -> None:
        await super().close()
        await self._registration.client.close()


@dataclass
class RemoteJobSetup(JobSetup):
    """The same jobs; the store has no database."""

    transactions: ClassVar[bool] = False
    plane: ControlPlane

    async def store(self, node: int) -> Any:
        client = ControlPlaneClient(self.plane.url, self.plane.tokens["work"])
        await client.register(RegisterRequest(hostname=f"n{node}", kinds=["work"]))
        return OverHttp(Member(client), wait=1, poll=1)

    async def reset(self, store: Any) -> int:
        keeper = await JobSetup.store(self, 0)
        try:
            return await JobSetup.reset(self, keeper)
        finally:
            await keeper.close()


@dataclass
class RemoteTableSetup(TableSetup):
    """The same table; the store has no database."""

    transactions: ClassVar[bool] = False
    plane: ControlPlane
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def store(self, node: int) -> Any:
        client = ControlPlaneClient(self.plane.url, self.plane.tokens["work"])
        await client.register(RegisterRequest(hostname=f"n{node}", tables=["uploads"]))
        return OverHttp(Member(client), "uploads", wait=1, poll=1)

    async def reset(self, store: Any) -> int:
        async with self.turn:  # all of them look at the table through one connection
            # the control plane has just started, and right after an outage no row of its workers is reset
            await self.conn.execute("update howdah.contact set since = since - interval '1 hour'")
            keeper = await TableSetup.store(self, 0)
        try:
            return await TableSetup.reset(self, keeper)
        finally:
            await keeper.close()


SETUPS = {"jobs": JobSetup, "table": TableSetup, "fleet": RemoteJobSetup, "fleet-table": RemoteTableSetup}


@pytest.fixture(params=SETUPS)
async def store_setup(
    request: Any, app: Howdah, database: Any, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Any]:
    """Rows or jobs for a store, in every kind."""
    over_http = request.param.startswith("fleet")
    pool = await database.pool(4)
    await conn.execute(ddl(extra="n int"))
    more: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        if over_http:
            app.table("uploads")
            monkeypatch.setattr("howdah.control_plane.server.RESET_EVERY", 3600.0)  # the suite itself says when
            more["plane"] = await stack.enter_async_context(serving(app, offline_after=60.0))
        async with settled(SETUPS[request.param](app, database, conn, pool, **more)) as made:
            yield made
    await app.close()
    pool.terminate()


@asynccontextmanager
async def settled(made: Any) -> AsyncIterator[Any]:
    """A setup whose stores are closed in the end."""
    stores = []
    plain = made.store

    async def store(node: int) -> Store:
        stores.append(await plain(node))
        return stores[-1]

    made.store = store
    try:
        yield made
    finally:
        for each in stores:
            await each.close()


OUTCOMES = {
    Outcome.OK: "done",
    Outcome.FAILED: "failed",
    Outcome.POISON: "failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.RETRY: "queued",
    Outcome.SNOOZED: "queued",
    Outcome.RELEASED: "queued",
}
