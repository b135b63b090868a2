"""A session lets go of a connection in the middle of a statement: nothing goes on without it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from howdah.postgres.database import Database, Session
from kit.node import eventually

pytestmark = pytest.mark.anyio

LEFT = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = 'howdah tried' and state <> 'idle'
"""


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_statement_nobody_waits_for_any_more_is_ended(database, conn, how):
    session = Session(Database(database.dsn, command_timeout=0.3 if how == "timeout" else 60), "tried")

    async def running() -> bool:
        return bool(await conn.fetchval(LEFT))

    async def over() -> bool:
        return not await conn.fetchval(LEFT)

    for _ in range(3):
        waiting = asyncio.create_task(session.fetch("select pg_sleep(600)"))
        if how == "cancelled":
            await eventually(running)
            waiting.cancel()
        with suppress(TimeoutError, asyncio.CancelledError):
            await waiting
        assert waiting.done()

    await eventually(over)
    assert await session.fetchval("select 1", timeout=30) == 1
    await session.close()
