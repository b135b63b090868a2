"""Schema of a benchmark: emptied for every scenario, checked after every run, dropped at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import asyncpg

from howdah.errors import ConfigError, HowdahError
from howdah.postgres import migrate, sql
from howdah.postgres.database import Database
from howdah_lab.bench.app import app

MARK = "howdah bench: may be dropped"
STATEMENT_TIMEOUT = 120.0
"""Seconds for one statement on the tables of a whole run."""


class CheckFailed(HowdahError):
    """The tables do not hold the expected rows, so the figure is invalid."""


class BenchSchema:
    """One schema for one benchmark at a time; refuses to touch a schema it did not make."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sql = sql.load("howdah_lab.bench", schema=database.schema)
        self._conn: asyncpg.Connection | None = None
        self._guard: asyncpg.Connection | None = None

    async def __aenter__(self) -> Self:
        self._conn = await self.database.connect("bench")
        try:
            await self._lock()
            await self._refuse()
        except BaseException:
            self._hang_up()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await app.close()
            await self.conn.execute(self._sql["drop"], timeout=STATEMENT_TIMEOUT)
        finally:
            self._hang_up()

    @property
    def conn(self) -> asyncpg.Connection:
        """A connection to check the tables with."""
        assert self._conn is not None
        return self._conn

    async def fresh(self) -> None:
        """Empty the schema, and let the application of this process use it."""
        await app.close()
        async with self.conn.transaction():
            await self.conn.execute(self._sql["remake"], timeout=STATEMENT_TIMEOUT)
        await migrate.migrate(self.database)
        await self.conn.execute(self._sql["make_tables"])
        app.connect_to(self.database.dsn, self.database.schema)

    async def check(self, *, done: int, waiting: int = 0, effects: int = 0) -> None:
        """Check the tables, see :func:`check_tables`."""
        await check_tables(self.conn, self.database.schema, done=done, waiting=waiting, effects=effects)

    async def _lock(self) -> None:
        # an idle transaction without a snapshot holds back nothing, and works through a transaction pooler too
        self._guard = guard = await self.database.connect("bench guard")
        await guard.execute("begin; set local idle_in_transaction_session_timeout = 0")
        key = f"{self.database.schema} bench"
        if not await guard.fetchval("select pg_try_advisory_xact_lock(hashtextextended($1, 0))", key):
            raise ConfigError(f"another benchmark runs in schema {self.database.schema!r}; wait for its end")

    async def _refuse(self) -> None:
        row = await self.conn.fetchrow(self._sql["open"], self.database.schema)
        if row["found"] and row["mark"] != MARK:
            raise ConfigError(
                f"schema {self.database.schema!r} exists and was not made by a benchmark, so it is left alone;"
                " name another with --schema"
            )

    def _hang_up(self) -> None:
        for conn in (self._conn, self._guard):
            if conn is not None:
                conn.terminate()


async def check_tables(conn: asyncpg.Connection, schema: str, *, done: int, waiting: int = 0, effects: int = 0) -> None:
    """Raise :class:`CheckFailed` unless so many jobs are done exactly once, so many wait, and none is elsewhere."""
    row = await conn.fetchrow(sql.load("howdah_lab.bench", schema=schema)["check"], timeout=STATEMENT_TIMEOUT)
    wanted = {
        "jobs": done + waiting,
        "done": done,
        "other": 0,
        "waiting": waiting,
        "leases": 0,
        "failures": 0,
        "effects": effects,
        "doubled": 0,
    }
    wrong = [f"{name} {row[name]:,} instead of {value:,}" for name, value in wanted.items() if row[name] != value]
    if wrong:
        raise CheckFailed(f"the tables do not add up: {', '.join(wrong)}")


@asynccontextmanager
async def held_snapshot(database: Database) -> AsyncIterator[None]:
    """Hold a snapshot open, as a long report or a forgotten session would, and make sure it was held throughout."""
    conn = await database.connect("bench snapshot")
    try:
        async with conn.transaction(isolation="repeatable_read"):
            before = await conn.fetchval("select pg_current_snapshot()::text")
            yield
            after = await conn.fetchval("select pg_current_snapshot()::text")
        if before != after:
            raise CheckFailed("the snapshot was not held")
    finally:
        conn.terminate()
