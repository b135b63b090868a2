"""Retry and delete hold no lease, and neither they nor a prune let a late ack leave an outcome without its job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from kit.interleave import ThreeConnections, meet, result_of, switch_off, three_connections
from kit.interleave_jobs import NOBODY, STATEMENTS, TOMORROW, PreparedJobs, ack, acking_in_transaction, heartbeat, lay
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

SOON = 20
"""Seconds within which something that waits for nobody is through, also on a busy machine."""
LEASE_LOST = "UnknownPostgresError"
"""How the driver calls our own code HW001."""
WITHOUT_JOB = "select count(*) from howdah.done d where not exists (select from howdah.job j where j.id = d.id)"
RETRY = "select * from howdah.retry($1)"
DELETE = "select * from howdah.delete($1)"
FUNCTIONS = ("ack_in_transaction", "ack_keyless")
SECOND_LOOK = """p_result);
    if exists (select from "howdah".gone g where g.token = p_token and g.id = p_id) then"""


@pytest.fixture
async def three(direct: Database) -> AsyncIterator[ThreeConnections]:
    async with three_connections(direct) as conns:
        yield conns


async def beats(prepared: PreparedJobs, conn: Any) -> bool:
    """Whether the node's heartbeat comes through and keeps its lease."""
    await conn.execute(f"set statement_timeout = '{SOON}s'")
    try:
        return bool(await result_of(heartbeat(prepared, conn)) == [])
    finally:
        await conn.execute("reset statement_timeout")


@pytest.mark.parametrize("act", [RETRY, DELETE], ids=["retry", "delete"])
async def test_an_open_transaction_holds_up_neither_heartbeat_nor_acks(three: ThreeConnections, act: str):
    prepared = await lay(three.watch)
    opened = three.one.transaction()
    await opened.start()
    await three.one.fetch(act, prepared.at(2))

    assert await beats(prepared, three.other)
    assert await ack(three.other, prepared.node, [Ack(prepared.held(4), Outcome.OK, 1)], []) == {prepared.ids[4]: "ok"}
    assert await ack(
        three.other, prepared.node, [Ack(prepared.held(6), Outcome.RETRY, 1, error="E", delay=1.0)], []
    ) == {prepared.ids[6]: "retry"}
    await opened.commit()
    assert await wrongs(three.watch) == []


async def test_a_retry_that_waits_for_a_key_holds_up_no_heartbeat(three: ThreeConnections):
    prepared = await lay(three.watch)
    beaten = []

    async def hold_key(conn: Any) -> None:
        await conn.execute("insert into howdah.job_key (key, id) values ('key 2', 0)")

    async def retry(conn: Any) -> dict[int, str]:
        return {row["id"]: row["result"] for row in await conn.fetch(RETRY, prepared.at(0, 2))}

    opened = three.one.transaction()
    await opened.start()
    await hold_key(three.one)
    met = await meet_third(three, retry, lambda: beats(prepared, three.watch), beaten)
    await opened.rollback()

    assert beaten == [True]
    assert await met == dict.fromkeys(prepared.at(0, 2), "queued")
    assert await wrongs(three.watch) == []


async def meet_third(three: ThreeConnections, waits: Any, meanwhile: Any, heard: list[Any]) -> Any:
    """Start ``waits`` on one connection, and do something else once it waits for another."""
    running = asyncio.ensure_future(waits(three.other))
    pids = three.one.get_server_pid(), three.other.get_server_pid()
    while not await three.watch.fetchval("select $1 = any(pg_blocking_pids($2))", *pids):
        assert not running.done(), "it does not wait"
        await asyncio.sleep(0.01)
    heard.append(await meanwhile())
    return running


async def test_a_bulk_retry_holds_no_lease(three: ThreeConnections):
    """Each lease spans all of the retried jobs, and names one of them."""
    prepared = await lay(three.watch)
    await three.watch.execute(
        """
        insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
        select $1, now() + interval '1 hour', low, low + 5000, '{1,2}',
            array[low + n, low + 4999], array[low + n + 1, low + 5000], '{1,1}'
        from generate_series(1000, 1999) n cross join (select $2::int8 as low) x
        """,
        prepared.node,
        prepared.ids[0],
    )
    await three.watch.execute(
        """
        insert into howdah.job (id, queue, kind, args)
        select $1::int8 + n, 'default', 'note', '{}' from generate_series(1000, 1999) n
        """,
        prepared.ids[0],
    )
    await three.watch.execute(
        "insert into howdah.done (id, attempt, state) select $1::int8 + n, 1, 'f' from generate_series(1000, 1999) n",
        prepared.ids[0],
    )
    opened = three.one.transaction()
    await opened.start()
    rows = await three.one.fetch(RETRY, [prepared.ids[0] + n for n in range(1000, 2000)])

    free = await three.other.fetch("select token from howdah.lease for update skip locked")
    await opened.commit()
    gone = await three.watch.fetch(
        "select g.id from howdah.gone g join howdah.lease l using (token) where l.his[2] > 0"
    )

    assert {row["result"] for row in rows} == {"queued"}
    assert len(free) == 1001
    assert {row["id"] for row in gone} >= {row["id"] for row in rows}, "its lease no longer counts it"
    assert len(gone) == 1000, "and no other lease was told"


# -------------------------------------------------------------------- a handler's transaction that commits late


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("act", [RETRY, DELETE], ids=["retry", "delete"])
async def test_a_late_commit_of_a_job_that_was_retried_or_deleted_is_lost(
    three: ThreeConnections, act: str, function: str, guarded: bool
):
    """Its node had already reported the attempt as failed. Without the second look the job is in two places."""
    prepared = await lay(three.watch)
    if not guarded:
        await switch_off(three.watch, function, SECOND_LOOK, "p_result);\n    if false then")
    late = acking_in_transaction(function, 2)

    met = await meet(
        three, lambda conn: conn.fetch(act, prepared.at(2)), lambda conn: late(prepared, conn), commit=True
    )

    assert met.waited
    assert (met.second == LEASE_LOST) == guarded
    right = await wrongs(three.watch) == [] and await three.watch.fetchval(WITHOUT_JOB) == 0
    assert right == guarded


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("act", [RETRY, DELETE], ids=["retry", "delete"])
async def test_a_late_commit_beside_an_act_that_is_undone_changes_nothing(
    three: ThreeConnections, act: str, function: str
):
    prepared = await lay(three.watch)
    late = acking_in_transaction(function, 2)

    met = await meet(
        three, lambda conn: conn.fetch(act, prepared.at(2)), lambda conn: late(prepared, conn), commit=False
    )

    assert met.second == "UniqueViolationError"
    assert await three.watch.fetchval("select state from howdah.jobs where id = $1", prepared.ids[2]) == "failed"
    assert await wrongs(three.watch) == []


# -------------------------------------------------------------------- outcomes without their job


async def prune(conn: Any, keep: float = TOMORROW) -> int:
    return int(await conn.fetchval(STATEMENTS["prune_rows"], keep, keep, 100, *NOBODY))


async def test_a_success_reported_again_after_a_prune_leaves_no_outcome_without_its_job(three: ThreeConnections):
    prepared = await lay(three.watch)
    pruned = await prune(three.watch)

    again = await ack(three.watch, prepared.node, [Ack(prepared.held(1), Outcome.OK, 1)], [])

    assert pruned == 1, "0, which no lease names"
    assert again == {prepared.ids[1]: "ok"}
    assert await three.watch.fetchval(WITHOUT_JOB) == 0


async def test_what_a_lease_named_is_pruned_once_the_lease_is_over(three: ThreeConnections):
    prepared = await lay(three.watch)
    await prune(three.watch)
    await three.watch.execute("select howdah.reset()")

    assert await prune(three.watch) == 3, "1, 2 and 5, whose last attempt was lost"
    assert prepared.ids[4] in [row["id"] for row in await three.watch.fetch("select id from howdah.job")]


async def test_a_late_commit_after_a_prune_leaves_no_outcome_without_its_job(three: ThreeConnections):
    prepared = await lay(three.watch)
    await prune(three.watch)

    result = await result_of(acking_in_transaction("ack_keyless", 2)(prepared, three.watch))

    assert result == "UniqueViolationError"
    assert await three.watch.fetchval(WITHOUT_JOB) == 0


async def test_a_prune_removes_outcomes_without_their_job_and_no_others(three: ThreeConnections):
    prepared = await lay(three.watch)
    await three.watch.execute("insert into howdah.done (id, attempt, state) values (-1, 1, 'd'), ($1, 1, 'd')", 10**9)

    before = await three.watch.fetchval(WITHOUT_JOB)
    pruned = await prune(three.watch, 3600.0)

    assert (before, pruned) == (2, 0)
    assert await three.watch.fetchval(WITHOUT_JOB) == 0
    assert await three.watch.fetchval("select array_agg(id order by id) from howdah.done") == prepared.at(0, 1, 2)
