"""What a failover forgets of the log is not given out again: epochs of partitions and terms of leaders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from howdah.postgres import migrate, sql
from howdah.postgres.database import Database
from kit.node import EVENTUALLY_TIMEOUT
from kit.standby import pair

pytestmark = pytest.mark.anyio

STATEMENTS = sql.load("howdah.events", schema="howdah")
SETTINGS = {"fsync": "off", "max_connections": "50"}
OWNER, LEADER = 2**20 + 1, 2**20 + 2
LEASE = 600.0
BY_COUNT = """
create or replace function howdah.next_epoch(last bigint) returns bigint language sql as $$ select last + 1 $$
"""


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(dsn, timeout=4 * EVENTUALLY_TIMEOUT)
    try:
        yield conn
    finally:
        conn.terminate()


async def assigned(conn: Any) -> tuple[int, Any, int]:
    """Let the leader give the partition to its owner; returns the epoch, the term and the run of the server."""
    term = await conn.fetchval(STATEMENTS["lead"], LEADER, LEASE, LEASE)
    assert await conn.fetchval(STATEMENTS["assign"], ["view"], [0], [OWNER], LEADER, term) == 1
    return (
        await conn.fetchval("select epoch from howdah.consumer_partition"),
        term,
        await conn.fetchval("select howdah.begin_run()"),
    )


async def settled(conn: Any, epoch: int, run: int) -> bool:
    """Whether the owner can move the checkpoint from 0 to 1, which is undone."""
    around = conn.transaction()
    await around.start()
    moved = await conn.fetchval(STATEMENTS["move_checkpoint"], "view", 0, OWNER, epoch, 0, 1, 1, 1.0, run)
    await around.rollback()
    return bool(moved)


@pytest.mark.stories
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "counted"])
async def test_an_epoch_of_the_old_primary_is_not_given_out_by_the_new_one(fenced: bool):
    """The worst case: the same node gets the same partition again. With epochs that only count it has the same one."""
    async with pair(SETTINGS) as servers:
        await migrate.migrate(Database(servers.primary.dsn))
        async with connected(servers.primary.dsn) as conn:
            if not fenced:
                await conn.execute(BY_COUNT)
            await conn.fetchval(STATEMENTS["declare"], "view", 1, None, None, 0)
        await servers.cut_off()
        async with connected(servers.primary.dsn) as conn:
            old, old_term, old_run = await assigned(conn)
            assert await settled(conn, old, old_run)
        await servers.fail_over()
        async with connected(servers.standby.dsn) as conn:
            new, new_term, new_run = await assigned(conn)
            assert await settled(conn, new, new_run)

            assert (old == new) == (not fenced)
            assert await settled(conn, old, new_run) == (not fenced)
            assert not await settled(conn, old, old_run), "and the run of the server is another one"
            assert old_term != new_term
            late = await conn.fetchval(STATEMENTS["assign"], ["view"], [0], [None], LEADER, old_term)
            assert late == 0, "a plan of the old primary moves nothing here"


async def test_epochs_rise_and_two_servers_that_go_on_from_the_same_draw_different_ones(conn):
    last = await conn.fetchval("select howdah.next_epoch(0)")
    drawn = [row[0] for row in await conn.fetch("select howdah.next_epoch($1) from generate_series(1, 1000)", last)]

    assert len(set(drawn)) > 990, "a few of a thousand may meet among sixteen million"
    assert last < min(drawn) < max(drawn) < min(row[0] for row in await conn.fetch(NEXT, drawn))
    assert max(drawn) < 2**53


NEXT = "select howdah.next_epoch(x) from unnest($1::int8[]) x"


async def test_whoever_writes_a_share_draws_its_epoch(conn):
    """A trigger sees to it, so no statement can only count."""
    await conn.fetchval(STATEMENTS["declare"], "view", 1, None, None, 0)
    for statement in (
        "update howdah.consumer_partition set epoch = epoch + 1",
        "update howdah.consumer_partition set epoch = 0",
    ):
        before = await conn.fetchval("select epoch from howdah.consumer_partition")
        drawn = set()
        for _ in range(20):
            around = conn.transaction()
            await around.start()
            await conn.execute(statement)
            drawn.add(await conn.fetchval("select epoch from howdah.consumer_partition"))
            await around.rollback()
        assert len(drawn) > 15
        assert before < min(drawn)
        assert {epoch >> 24 for epoch in drawn} == {(before >> 24) + 1}
