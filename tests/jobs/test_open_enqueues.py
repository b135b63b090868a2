"""A worker that falls asleep knows every transaction that may have enqueued before it set its sleep marker."""

from __future__ import annotations

import pytest

from howdah.postgres import sql

pytestmark = pytest.mark.anyio
STATEMENTS = sql.load("howdah.jobs", schema="howdah")


async def test_the_youngest_transaction_is_underway_too(direct, conn):
    """As long as nothing younger is over, no snapshot lists it."""
    other = await direct.connect("other")
    transaction = other.transaction()
    await transaction.start()
    xid = await other.fetchval("select pg_current_xact_id()::text::int8")
    found = await conn.fetchval(STATEMENTS["open_transactions"])
    assert xid in found
    assert xid in await conn.fetchval(STATEMENTS["still_open"], found)
    await transaction.commit()
    assert xid not in await conn.fetchval(STATEMENTS["still_open"], found)
    assert xid not in await conn.fetchval(STATEMENTS["open_transactions"])
    await other.close()


async def test_older_ones_are_underway_while_younger_ones_come_and_go(direct, conn):
    other = await direct.connect("other")
    transaction = other.transaction()
    await transaction.start()
    xid = await other.fetchval("select pg_current_xact_id()::text::int8")
    for _ in range(3):
        await conn.execute("select pg_current_xact_id()")
        assert xid in await conn.fetchval(STATEMENTS["open_transactions"])
    await transaction.rollback()
    await other.close()
