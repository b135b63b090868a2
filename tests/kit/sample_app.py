"""An application that uses everything once, in a database with settings of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from howdah import Howdah, Retry, Transaction
from howdah.maintenance.pruner import Pruner, Retention
from howdah.postgres.sql import identifier, literal
from kit.node import eventually, node


@dataclass
class Shop:
    """A small application that uses everything once, and what it did."""

    app: Howdah
    done: list[str]

    async def run(self, conn: Any) -> None:
        """Enqueue, work, consume, tidy; returns when everything happened."""
        app, done = self.app, self.done
        await app.enqueue(app.tasks["succeed"].job())
        await app.enqueue_many(app.tasks["succeed"].job() for _ in range(3))
        await app.enqueue(app.tasks["flaky"].job())
        await app.enqueue(app.tasks["write"].job())
        await app.enqueue(app.tasks["succeed"].using(key="k", delay=0.1).job())
        await app.log.append("Order-1", [{"type": "Placed", "data": {"n": 1}}])
        everything = {"succeed": 5, "flaky": 2, "write": 1, "follow": 1}

        async def complete() -> bool:
            counts = {name: done.count(name) for name in everything}
            rows = await conn.fetch("select kind, state, count(*) as n from howdah.jobs group by 1, 2")
            states = {(row["kind"], row["state"]): row["n"] for row in rows}
            ended = {("succeed", "done"): 5, ("flaky", "done"): 1, ("write", "done"): 1}
            checkpoint = await conn.fetchval("select min(position) from howdah.checkpoint")
            fired = states.get(("tick", "done"), 0)
            return counts == everything and ended.items() <= states.items() and bool(fired) and bool(checkpoint)

        async with node(app):
            await eventually(complete, 60)
        assert await conn.fetchval("select count(*) from written") == 1

    async def tidy(self, conn: Any) -> None:
        """Prune everything; the partitions to come are there."""
        partitions = "select count(*) from pg_inherits where inhparent = 'howdah.job'::regclass"
        assert await conn.fetchval(partitions) > 1
        session = await self.app.database.connect("test")
        await session.fetchval("select howdah.grow()")  # one more, if no node has made it since the last job
        assert await session.fetchval("select howdah.grow()") == 0  # finds those that are there
        await session.close()
        await Pruner(self.app.database, Retention(done=0, failed=0)).prune()
        assert await conn.fetchval("select count(*) from howdah.done") == 0


def shop(dsn: str) -> Shop:
    app, done = Howdah(dsn), []

    @app.task
    async def succeed() -> None:
        done.append("succeed")

    @app.task
    async def flaky() -> None:
        done.append("flaky")
        if done.count("flaky") == 1:
            raise Retry("not yet", after=0.1)

    @app.task(transactional=True)
    async def write(tx: Transaction) -> None:
        await tx.execute("insert into public.written values (now())")
        await tx.execute("select pg_sleep(0.3)")
        done.append("write")

    @app.task
    async def tick() -> None: ...

    app.schedule("tick", tick.job(), cron="* * * * * *")

    @app.consumer("follow")
    async def follow(event: Any, tx: Any) -> None:
        await tx.execute("select 1")
        done.append("follow")

    return Shop(app, done)


async def apply(conn: Any, dsn: str, settings: dict[str, str], scope: str = "alter database {database}") -> None:
    """Let every new session of the scope, as the database, have these settings."""
    known = {row["name"].lower() for row in await conn.fetch("select name from pg_settings")}
    alter = scope.format(database=identifier(urlsplit(dsn).path[1:]))
    for name, value in settings.items():
        if name.lower() in known:
            await conn.execute(f"{alter} set {name} = {literal(value)}")
