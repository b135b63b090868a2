"""Load: clients of every front, which record their requests and the replies in the ledger."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from howdah.errors import DatabaseFull, DatabaseUnreachable
from howdah.postgres import sql
from howdah.postgres.database import BROKEN, Database
from howdah_lab.torture import app as tortured
from howdah_lab.torture.crashing_handlers import CRASHING
from howdah_lab.torture.ledger import LedgerWriter
from howdah_lab.torture.outcomes import NAMES, state_of
from howdah_lab.torture.poison import HOSTILE, KINDS, Unstorable
from howdah_lab.torture.rows import STATES

UNCERTAIN: tuple[type[BaseException], ...] = (*BROKEN, DatabaseUnreachable)
"""Errors after which the outcome of a request is unknown."""
STREAMS = 12
CRASHES_AT_ONCE = 5
MADE_UP = 10
"""Outcomes at random, each time."""
REPLY_TIMEOUT = 3.0
"""Seconds a client waits for an answer."""
KEY_DELAY = 4 * REPLY_TIMEOUT
"""Seconds a job with a unique key is not due: for that long its client may say again what it wants."""


class Load:
    """Enqueues, inserts and appends until it is stopped, under the same faults as the workers."""

    def __init__(
        self, database: Database, run_schema: str, ledger_writer: LedgerWriter, chance: random.Random, *, longest: float
    ) -> None:
        self._database = Database(database.dsn, schema=database.schema, command_timeout=REPLY_TIMEOUT)
        self._ledger_writer = ledger_writer
        self._chance = chance
        self._longest = longest
        self.statements = sql.load("howdah_lab.torture", schema=database.schema, run_schema=run_schema)
        self._marks = itertools.count(1)
        self._app = tortured.app
        self.intended = 0
        self._keyed_until = math.inf

    async def run(self, stop: asyncio.Event, seconds: float = math.inf) -> None:
        """Ask for work until ``stop``, which is expected after so many seconds."""
        self._keyed_until = time.monotonic() + max(seconds - KEY_DELAY, seconds / 3)
        self._app.connect_to(self._database.dsn, self._database.schema)
        self._app.database.command_timeout = REPLY_TIMEOUT
        asks: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (0.10, self.one),
            (0.15, self.transaction),
            (0.40, self.bulk),
            (0.12, self.keyed),
            (0.30, self.later),
            (0.20, self.rows),
            (0.10, self.append),
            (0.15, self.remote),
        )
        async with asyncio.TaskGroup() as group:
            for pause, ask in asks:
                group.create_task(self._repeat(pause, ask, stop))
        await self._app.close()

    async def one(self) -> None:
        """One job by one call."""
        mark = next(self._marks)
        task = self._chance.choice([tortured.effect, tortured.stumble])
        await self._request("jobs", [mark], lambda: task.enqueue(mark, self._pause()))

    async def bulk(self) -> None:
        """Many jobs at once; some have no transaction."""
        marks = [next(self._marks) for _ in range(self._chance.randint(2, 12))]
        jobs = [tortured.effect.job(mark, self._pause()) for mark in marks]
        await self._request("jobs", marks, lambda: self._app.enqueue_many(jobs))
        marks = [next(self._marks) for _ in range(self._chance.randint(2, 12))]
        task: Any = self._chance.choice([tortured.plain, tortured.threaded])
        others = [task.job(mark, self._pause()) for mark in marks]
        await self._request("plain", marks, lambda: self._app.enqueue_many(others))

    async def transaction(self) -> None:
        """A job in a transaction of the client's own, which may be rolled back."""
        mark = next(self._marks)
        keep = self._chance.random() < 0.8

        async def ask() -> None:
            async with self._transaction(keep=keep) as conn:
                await tortured.effect.using(conn=conn).enqueue(mark, self._pause())

        await self._request("jobs", [mark], ask, kept=keep)

    async def keyed(self) -> None:
        """A job with a unique key, asked for until the answer is known: there must be one.

        Near the end of a run no more of them are asked for, or the run would have to wait until the last one is due.
        """
        if time.monotonic() > self._keyed_until:
            return
        mark = next(self._marks)
        self._ledger_writer.write("intend", "jobs", mark)
        self.intended += 1
        task = tortured.effect.using(key=f"once {mark}", delay=KEY_DELAY)
        until = time.monotonic() + REPLY_TIMEOUT
        reply = "unknown"
        while reply == "unknown" and time.monotonic() < until:
            try:
                async with asyncio.timeout(REPLY_TIMEOUT):
                    await task.enqueue(mark, self._pause())
                reply = "acked"
            except UNCERTAIN:
                await asyncio.sleep(0.1)
        self._ledger_writer.write(reply, "jobs", mark)  # type: ignore[arg-type]

    async def later(self) -> None:
        """A job that is due in a moment."""
        mark = next(self._marks)
        task = tortured.effect.using(delay=self._chance.uniform(0.1, 3), priority=self._chance.randint(-2, 2))
        await self._request("jobs", [mark], lambda: task.enqueue(mark, self._pause()))

    async def rows(self) -> None:
        """Rows of a table of the client's own."""
        marks = [next(self._marks) for _ in range(self._chance.randint(1, 4))]

        async def ask() -> None:
            async with self._transaction() as conn:
                await conn.execute(self.statements["put_rows"], marks, [self._pause() for _ in marks])

        await self._request("tables", marks, ask)

    async def append(self) -> None:
        """Events of one stream in a transaction that stays open for a moment, and may be rolled back."""
        marks = [next(self._marks) for _ in range(self._chance.randint(1, 4))]
        ordered = next(self._marks)
        keep = self._chance.random() < 0.85
        events = [tortured.Happened(mark) for mark in marks]
        stream = self._chance.randrange(STREAMS)

        async def ask() -> None:
            async with self._transaction(keep=keep) as conn:
                declaration_change = await conn.fetchval(self.statements["newest_declaration_change"])
                await self._app.log.append(f"Stream-{stream}", events, conn=conn)
                await asyncio.sleep(self._chance.choice([0, 0, 0.01, 0.05]))
                await self._app.log.append(
                    f"Order-{stream}", tortured.Ordered(ordered, self._pause(), declaration_change), conn=conn
                )

        self._ledger_writer.write("intend", "jobs", ordered)
        reply = await self._request("events", marks, ask, kept=keep)
        self._ledger_writer.write(reply, "jobs", ordered)  # type: ignore[arg-type]

    async def remote(self) -> None:
        """Jobs for workers without a database."""
        marks = [next(self._marks) for _ in range(self._chance.randint(1, 3))]
        jobs = [tortured.remote.job(mark, self._pause()) for mark in marks]
        await self._request("fleet", marks, lambda: self._app.enqueue_many(jobs))

    async def poison(self) -> None:
        """Jobs that break, and one with invalid arguments. Processes are expensive: only some deaths at a time."""
        deaths = self._chance.sample(CRASHING, CRASHES_AT_ONCE)
        for task in (*(kind for kind in KINDS if kind not in CRASHING), *deaths):
            mark = next(self._marks)
            await self._request("poison", [mark], lambda task=task, mark=mark: task.enqueue(mark))  # type: ignore[misc]
        for name in (*NAMES, *("" for _ in range(MADE_UP))):
            await self._hostile(name)
        unstorable = [
            Unstorable(name, self._chance.randrange(2**32)) for name in (*NAMES, *("" for _ in range(MADE_UP)))
        ]
        self._chance.shuffle(unstorable)
        await self._request("unstorable", [], lambda: self._app.log.append("Unstorable-1", unstorable))
        mark = next(self._marks)

        async def unreadable() -> None:
            async with self._transaction() as conn:
                await conn.execute(self.statements["unreadable"], mark)

        await self._request("poison", [mark], unreadable)

    async def _hostile(self, name: str) -> None:
        """A job with a hostile outcome, anywhere a handler can run; of no name: with one that is made up."""
        mark, seed = next(self._marks), self._chance.randrange(2**32)
        task: Any = self._chance.choices(list(HOSTILE), list(HOSTILE.values()))[0]
        kind = state_of(name) if name else "any"
        await self._request("poison", [mark], lambda: task.enqueue(mark, name, seed), kind=kind)

    async def insert_refusing(self) -> None:
        """Rows that the table refuses in every way, and others between them."""
        refusals = [refusal for refusal in STATES for _ in range(1 if refusal else 2 * len(STATES))]
        self._chance.shuffle(refusals)
        await self._put_refusing(refusals)

    async def plain_rows(self) -> None:
        """Rows that the same table does not refuse; their handlers have no transaction."""
        await self._put_refusing(["" for _ in range(self._chance.randint(1, 4))])

    async def _put_refusing(self, refusals: list[str]) -> None:
        marks = [next(self._marks) for _ in refusals]

        async def ask() -> None:
            async with self._transaction() as conn:
                pauses = [0.1 if refusal else self._pause() for refusal in refusals]
                await conn.execute(self.statements["put_refusing"], marks, pauses, refusals)

        await self._request("refusing", marks, ask)

    async def storm(self, jobs: int) -> None:
        """So many jobs, all due at the same moment."""
        marks = [next(self._marks) for _ in range(jobs)]
        task = tortured.plain.using(delay=2.0)
        made = [task.job(mark, 0.0) for mark in marks]
        await self._request("plain", marks, lambda: self._app.enqueue_many(made))

    async def _request(
        self, front: str, marks: list[int], ask: Callable[[], Awaitable[Any]], *, kept: bool = True, kind: str = ""
    ) -> str:
        """Record the request, send it, record the reply."""
        self._ledger_writer.write("intend", front, *marks, kind=kind)
        self.intended += len(marks)
        try:
            async with asyncio.timeout(2 * REPLY_TIMEOUT):
                await ask()
            reply = "acked" if kept else "refused"
        except DatabaseFull:  # the error means that nothing was done
            reply = "refused"
        except UNCERTAIN:
            reply = "unknown" if kept else "refused"
        except asyncpg.PostgresError:  # the server returned an error: nothing was done
            reply = "refused"
        self._ledger_writer.write(reply, front, *marks)  # type: ignore[arg-type]
        return reply

    @asynccontextmanager
    async def _transaction(self, *, keep: bool = True) -> Any:
        conn = await self._database.connect("client")
        try:
            transaction = conn.transaction()
            await transaction.start()
            yield conn
            await (transaction.commit() if keep else transaction.rollback())
        finally:
            conn.terminate()

    async def _repeat(self, pause: float, ask: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await ask()
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * pause)

    def _pause(self) -> float:
        """Most handlers are quick; some last longer than a lease, so that something always runs when it breaks."""
        if self._chance.random() < 0.9:
            return self._chance.uniform(0, 0.05)
        return self._chance.uniform(0.3, self._longest)
