"""TableDesk: where workers without a database get rows of the user's tables, and say how they ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from howdah import service
from howdah.job import Job
from howdah.outcome import Ack, Outcome
from howdah.pg.database import Database, Session
from howdah.service import Outage
from howdah.table.options import TableOptions
from howdah.table.plan import Plan
from howdah.table.store import TableStore

Key = tuple[int, Any]
LOOK = 1.0
"""Seconds between looks for rows while somebody waits; a table of the user's rings no bell here."""


class TableDesk:
    """The rows of one table."""

    def __init__(self, database: Database, plan: Plan, pool: Any) -> None:
        self._plan = plan
        self._store = TableStore(database, plan, pool=pool)
        self._session = Session(database, "heartbeat")
        self._outage = Outage(f"claim of {plan.options.name} for the fleet")
        self._closing = asyncio.Event()
        self._returning: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, database: Database, options: TableOptions, pool: Any) -> TableDesk:
        """Check the table and get ready."""
        session = Session(database, "check")
        try:
            async with session.use() as conn:
                # what a budget counts is in the worker's hands, and so is how much it wants to do
                limitless = replace(options, budget=None, total_jobs=0, max_active_time=0)
                plan = await Plan.make(conn, limitless, database.schema)
        finally:
            await session.close()
        return cls(database, plan, pool)

    async def claim(self, most: int, wait: float) -> list[Job]:
        """Up to ``most`` rows, within ``wait`` seconds."""
        until = time.monotonic() + wait
        while not self._closing.is_set():
            jobs = await self._claim(most)
            left = until - time.monotonic()
            if jobs or left <= 0:
                return jobs
            await service.wait(self._closing, min(LOOK, left))
        return []

    def turn_away(self) -> None:
        """Let everybody who waits go with nothing: this control plane ends."""
        self._closing.set()

    async def _claim(self, most: int) -> list[Job]:
        claiming = asyncio.create_task(self._store.claim(most, {}))
        try:
            jobs = await asyncio.shield(claiming)
        except asyncio.CancelledError:  # whoever asked has gone; what is claimed for nobody goes back
            returning = asyncio.create_task(self._hand_back(claiming))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise
        self._store.disown({job.token for job in jobs})  # the worker remembers them, not we
        return jobs

    async def _hand_back(self, claiming: asyncio.Task[list[Job]]) -> None:
        try:
            jobs = await claiming
            self._store.disown({job.token for job in jobs})
            await self.release([(job.token, job.id) for job in jobs])
        except Exception as error:
            self._outage.fail(error)  # nobody renews them: they run out by themselves

    async def ack(self, acks: Sequence[Ack]) -> list[Ack]:
        """Record how attempts ended."""
        return await self._store.ack(acks, ())

    async def release(self, keys: Sequence[Key]) -> int:
        """Hand rows back."""
        jobs = [Job(id, "", "", 1, 1, token, b"") for token, id in keys]
        return len(await self._store.ack([Ack(job, Outcome.RELEASED, 0) for job in jobs], ()))

    async def heartbeat(self, keys: Sequence[Key]) -> tuple[set[Key], list[Any]]:
        """Say that these rows are worked on: those that are still the worker's, and those no longer wanted."""
        if not keys:
            return set(), []
        ids, tokens = list({id for _, id in keys}), list({token for token, _ in keys})
        rows = await self._session.fetch(self._plan.sql["heartbeat"], ids, tokens)
        known = {(row["token"], self._plan.id(row["id"])) for row in rows}
        return known & set(keys), [self._plan.id(row["id"]) for row in rows if row["cancel"]]

    def read_id(self, value: Any) -> Any:
        """A key as it came over the wire, as the table has it."""
        return self._plan.id(value)

    async def reset(self) -> None:
        """Take back the rows of silent workers."""
        await self._store.reset(100)
        await self._store.cancel(100)

    async def close(self) -> None:
        """Close the connections."""
        self.turn_away()
        if self._returning:
            await asyncio.wait(self._returning, timeout=LOOK)
        await self._store.close()
        await self._session.close()
