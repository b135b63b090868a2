"""Appenders in a process of their own: ``python -m kit.appenders DSN SECONDS`` prints what they did.

Transactions are held open for a while, some are rolled back, some append in a savepoint that is, some have a snapshot
older than their append, some come by COPY.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import asyncpg

from howdah import Howdah, StreamConflict

APPENDERS = 16
STREAMS = 150
HELD = 0.008
SIZES = (1, 1, 1, 5, 20, 100)


class Appender:
    """One connection that appends until the time is up."""

    def __init__(self, app: Howdah, seed: int) -> None:
        self._app = app
        self._dice = random.Random(seed)
        self._conn: Any = None
        self.did: Counter[str] = Counter()

    async def run(self, dsn: str, until: float) -> None:
        self._conn = await asyncpg.connect(dsn)
        while time.monotonic() < until:
            try:
                await self._transaction()
            except StreamConflict:
                self.did["conflicts"] += 1
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                self.did["serialization failures"] += 1
        await self._conn.close()

    async def _transaction(self) -> None:
        old = self._chance(0.1)
        transaction = self._conn.transaction(isolation="repeatable_read" if old else "read_committed")
        await transaction.start()
        try:
            if old:
                await self._conn.fetchval("select count(*) from howdah.event where position < 0")
                await self._hold()
                self.did["old snapshots"] += 1
            events = sum([await self._append() for _ in range(self._dice.choice((1, 1, 1, 2)))])
        except BaseException:
            await transaction.rollback()
            raise
        if self._chance(0.1):
            await transaction.rollback()
            self.did["rollbacks"] += 1
        else:
            await transaction.commit()
            self.did["commits"] += 1
            self.did["events"] += events

    async def _append(self) -> int:
        stream = f"S-{self._dice.randrange(STREAMS)}"
        size = self._dice.choice(SIZES)
        events = [{"type": "X", "data": {"n": n}} for n in range(size)]
        if self._chance(0.1):
            savepoint = self._conn.transaction()
            await savepoint.start()
            try:
                await self._app.log.append(stream, events, conn=self._conn)
                await self._hold()
            finally:
                await savepoint.rollback()
            self.did["savepoints"] += 1
        if self._chance(0.2):
            await self._app.log.append_many([(stream, events)], conn=self._conn)
            self.did["copies"] += 1
        else:
            await self._app.log.append(stream, events, conn=self._conn, expect=await self._expected(stream))
        await self._hold()
        return size

    async def _expected(self, stream: str) -> int | None:
        if self._chance(0.7):
            return None
        head = "select coalesce(max(version), 0) from howdah.event where stream_type = 'S' and stream_id = $1"
        return int(await self._conn.fetchval(head, stream[2:]))

    def _chance(self, probability: float) -> bool:
        return self._dice.random() < probability

    async def _hold(self) -> None:
        await asyncio.sleep(self._dice.random() * HELD)


async def main(dsn: str, seconds: float) -> None:
    app = Howdah(dsn)
    appenders = [Appender(app, seed) for seed in range(APPENDERS)]
    until = time.monotonic() + seconds
    await asyncio.gather(*(appender.run(dsn, until) for appender in appenders))
    print(json.dumps(sum((appender.did for appender in appenders), Counter())))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
