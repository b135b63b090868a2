"""A table that is hurt under work, and what has nothing to do with it and must go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from howdah import Howdah, telemetry
from howdah.node.node import Node
from howdah.postgres.database import Database
from kit.node import eventually, node
from table.ddl import ddl

LEASE = 4.0
"""Seconds, of what has nothing to do with the table that is hurt."""


class DamagedTable:
    """A table that is damaged, another one and a task that are not, and a node that works on all of them."""

    def __init__(self, database: Database, conn: Any) -> None:
        self.app = Howdah(database.dsn)
        self.conn = conn
        self.lost: list[str] = []
        self._over = False

    async def lay_out(self) -> None:
        await self.conn.execute(ddl("uploads", extra="n int"))
        await self.conn.execute(ddl("downloads", extra="n int"))
        downloads = self.app.table("downloads", poll=0.1, stalled_after=LEASE, heartbeat=0.25)

        @downloads.handler
        async def download(record: Any) -> None:
            await asyncio.sleep(0.05)

        @self.app.task
        async def task() -> None:
            await asyncio.sleep(0.05)

        self.downloads, self.task = downloads, task

    def table(self, handler: Any, **options: Any) -> None:
        """How the table that is hurt is worked on."""
        table = self.app.table("uploads", poll=0.1, heartbeat=0.25, retry_after=0, **options)
        table.handler(handler)

    async def add(self, count: int, table: str = "uploads") -> None:
        await self.conn.execute(f"insert into {table} (n) select generate_series(1, {count})")

    async def states(self) -> dict[str, int]:
        rows = await self.conn.fetch("select state, count(*) from uploads group by 1 order by 1")
        return {row["state"]: row["count"] for row in rows}

    async def all_are(self, **states: int) -> None:
        async def so() -> bool:
            return await self.states() == states

        try:
            await eventually(so)
        except AssertionError:
            raise AssertionError(f"they are {await self.states()}") from None

    async def others_go_on(self) -> None:
        """Work on the other table and on jobs is begun and ended from now on."""
        before = await self._ended()

        async def more() -> bool:
            return all(now >= then + 5 for now, then in zip(await self._ended(), before, strict=True))

        await eventually(more)

    @asynccontextmanager
    async def at_work(self, **options: Any) -> AsyncIterator[Node[Any]]:
        def hear(name: str, facts: dict[str, Any]) -> None:
            if name == "job.lost":
                self.lost += [job.kind for job in facts["jobs"]]

        unsubscribe = telemetry.subscribe(hear)
        feeding = asyncio.create_task(self._feed())
        try:
            async with node(self.app, lease=LEASE, **options) as running_node:
                await self.others_go_on()
                yield running_node
                await self.others_go_on()
                assert running_node.ready
        finally:
            self._over = True
            await feeding
            unsubscribe()
            await self.app.close()

    async def _feed(self) -> None:
        conn = await self.app.database.connect("feed")
        while not self._over:
            await conn.execute("insert into downloads (n) values (1)")
            await self.task.enqueue()
            await asyncio.sleep(0.05)
        await conn.close()

    async def _ended(self) -> tuple[int, int]:
        return (
            await self.conn.fetchval("select count(*) from downloads where state = 'completed'"),
            await self.conn.fetchval("select count(*) from howdah.done"),
        )

    async def unharmed(self) -> bool:
        """Whether nothing happened to the others."""
        table = await self.conn.fetchval("select count(*) from downloads where num_resets + num_failures > 0")
        jobs = await self.conn.fetchval("select count(*) from howdah.attempt")
        return table == jobs == 0 and not {"downloads", "task"} & set(self.lost)


def noisy(caplog: Any) -> list[Any]:
    """What was said more than once within a second: outages by their names, lost rows by the reason."""
    lines = [record for record in caplog.records if record.name == "howdah" and record.levelname != "INFO"]
    counts = Counter((int(line.created), line.msg, line.args[0 if "failed (" in line.msg else -1]) for line in lines)
    return [what for what, times in counts.items() if times > 1]
