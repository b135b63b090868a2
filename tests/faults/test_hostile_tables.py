"""The user's table is hurt under work: its rows end in named states, everything else goes on, it heals when mended.

Rows deleted one by one, a renamed column and a broken view are in tests/table (test_row_outcomes, test_user_columns).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from howdah import Transaction
from howdah.postgres.database import Session
from howdah.table.contract import NEEDS
from kit.damaged_table import LEASE, DamagedTable, noisy
from kit.node import eventually
from table.ddl import ddl

pytestmark = pytest.mark.anyio

LOCKED = 1.5 * LEASE


@pytest.fixture
async def damaged(database, conn):
    damaged = DamagedTable(database, conn)
    await damaged.lay_out()
    return damaged


async def lock_while_long_ones_run(damaged, direct):
    """Lock the table while rows of the other one and jobs run that last longer than their leases."""
    lasting, locked, started = asyncio.Event(), asyncio.Event(), []

    @damaged.app.task
    async def long_task() -> None:
        started.append("task")
        await lasting.wait()

    async def upload(record) -> None:
        started.append("upload")
        await locked.wait()
        await asyncio.sleep(0.5)

    damaged.table(upload, stalled_after=30.0)
    await damaged.add(2)
    made = await long_task.enqueue()
    other = await direct.connect("other")
    async with damaged.at_work():

        async def all_started():
            return sorted(started) == ["task", "upload", "upload"]

        await eventually(all_started)
        async with other.transaction():
            await other.execute("lock table uploads in access exclusive mode")
            locked.set()
            await asyncio.sleep(LOCKED)
            await damaged.others_go_on()
        lasting.set()
        await damaged.all_are(completed=2)
        await eventually(lambda: _done(damaged.conn, made.id))
    await other.close()
    return len(started)


async def _done(conn, id):
    return await conn.fetchval("select state from howdah.jobs where id = $1", id) == "done"


async def test_a_locked_table_holds_up_nobody_else(damaged, direct, caplog):
    assert await lock_while_long_ones_run(damaged, direct) == 3, "nothing ran twice"
    assert await damaged.unharmed()
    assert noisy(caplog) == []
    assert await damaged.conn.fetchval("select sum(num_resets + num_failures) from uploads") == 0


async def test_a_heart_that_waited_for_the_locked_table_would_lose_the_others(damaged, direct, monkeypatch):
    """The control."""
    fetch = Session.fetch
    monkeypatch.setattr(
        Session, "fetch", lambda self, statement, *args, timeout=None: fetch(self, statement, *args, timeout=60)
    )
    await lock_while_long_ones_run(damaged, direct)
    assert not await damaged.unharmed()


@pytest.mark.parametrize("column", ["process_after", "last_heartbeat_at", "finished_at", "lease_token"])
async def test_a_column_that_is_dropped_under_work(damaged, caplog, column):
    """What claims, heartbeats, acks and fences need; each may be gone for a while."""
    let_go, started = asyncio.Event(), []

    async def upload(record) -> None:
        started.append(record["n"])
        if record["n"] == 1:
            await let_go.wait()

    damaged.table(upload, stalled_after=4.0, max_resets=5)
    await damaged.add(1)
    async with damaged.at_work() as running_node:

        async def one_runs():
            return started == [1]

        await eventually(one_runs)
        await damaged.conn.execute(f"alter table uploads drop column {column}")
        await damaged.add(3)
        let_go.set()
        await eventually(lambda: _told(caplog))
        await damaged.others_go_on()
        assert running_node.ready
        assert await damaged.conn.fetchval("select count(*) from uploads where id > 1 and state = 'queued'") == 3
        await damaged.conn.execute(f"alter table uploads add column {column} {NEEDS[column].ddl}")
        await damaged.all_are(completed=4)
    assert await damaged.unharmed()
    assert noisy(caplog) == []
    assert await damaged.conn.fetchval("select sum(num_failures) from uploads") == 0
    if column != "lease_token":
        assert sorted(started) == [1, 1, 2, 3], "the row that ran was still ours"


async def _told(caplog):
    return "failed (Undefined" in caplog.text


async def test_a_table_that_is_dropped_and_made_again(damaged, caplog):
    seen = []

    async def upload(record) -> None:
        seen.append(record["n"])
        await asyncio.sleep(0.05)

    damaged.table(upload)
    await damaged.add(20)
    async with damaged.at_work():

        async def some():
            return len(seen) > 3

        await eventually(some)
        await damaged.conn.execute("drop table uploads")
        await eventually(lambda: _told(caplog))
        await damaged.others_go_on()
        await damaged.conn.execute(ddl("uploads", extra="n int"))
        await damaged.add(5)
        await damaged.all_are(completed=5)
    assert await damaged.unharmed()
    assert noisy(caplog) == []


@pytest.mark.parametrize("transactional", [True, False])
async def test_a_unique_violation_is_a_failure_of_its_row_alone(damaged, caplog, transactional):
    await damaged.conn.execute("create table taken (n int primary key); insert into taken values (3)")

    if transactional:

        async def upload(record, tx: Transaction) -> None:
            await tx.execute("insert into taken values ($1)", record["n"])
    else:

        async def upload(record) -> None:
            conn = await damaged.app.database.connect("handler")
            try:
                await conn.execute("insert into taken values ($1)", record["n"])
            finally:
                conn.terminate()

    damaged.table(upload, max_attempts=3, transactional=transactional)
    await damaged.add(6)
    async with damaged.at_work():
        await damaged.all_are(completed=5, failed=1)
        row = await damaged.conn.fetchrow(
            "select n, num_failures, num_resets, failure_message from uploads where n = 3"
        )
        assert tuple(row)[:3] == (3, 3, 0)
        assert row["failure_message"].startswith("UniqueViolationError: duplicate key value")
        assert await damaged.conn.fetchval("select count(*) from taken") == 6
        await damaged.conn.execute("delete from taken where n = 3")
        await damaged.conn.execute("update uploads set state = 'queued', num_failures = 0 where n = 3")
        await damaged.all_are(completed=6)
    assert await damaged.unharmed()


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
async def test_rows_deleted_requeued_and_ended_by_hand_under_work(damaged, caplog, fenced):
    """A row somebody ended is his; what its worker says afterwards is not written, and neither is its effect."""
    await damaged.conn.execute("create table effect (id bigint)")
    chance, turn = random.Random(1), asyncio.Lock()
    beside = await damaged.app.database.connect("handler")

    async def upload(record, tx: Transaction) -> None:
        await tx.execute("insert into effect values ($1)", record["id"])
        try:
            await asyncio.sleep(chance.uniform(0.2, 0.6))
        finally:
            if not fenced:  # it writes whatever it was told
                async with turn:
                    await beside.execute("update uploads set failure_message = 'mine' where id = $1", record["id"])

    damaged.table(upload, transactional=True, max_attempts=20)
    by_hand: dict[int, str] = {}
    async with damaged.at_work(slots=20):
        while min(Counter(by_hand.values())[act] for act in ACTS) < 5:
            await damaged.add(5)
            for act, statement in ACTS.items():
                if (id := await damaged.conn.fetchval(statement)) is not None:
                    by_hand[id] = act
            await asyncio.sleep(0.05)

        async def over():
            return await damaged.conn.fetchval(
                "select count(*) = 0 from uploads where state in ('queued', 'processing')"
            )

        await eventually(over)
    await beside.close()
    rows = await damaged.conn.fetch(
        "select id, state, failure_message, (select count(*) from effect e where e.id = u.id) from uploads u"
    )
    wrong = [
        tuple(row)
        for row in rows
        if tuple(row)[1:] != (("canceled", "by hand", 0) if by_hand.get(row["id"]) == "end" else ("completed", None, 1))
    ]
    assert (wrong == []) == fenced, wrong
    assert await damaged.unharmed()
    if fenced:
        gone = [id for id, act in by_hand.items() if act == "delete"]
        assert await damaged.conn.fetchval("select count(*) from effect where id = any($1)", gone) == 0
        assert noisy(caplog) == []


# its worker may end it while we wait for the row: then it is left alone
ONE = "state = 'processing' and id = (select id from uploads where state = 'processing' order by random() limit 1)"
ACTS = {
    "requeue": f"update uploads set state = 'queued', lease_token = null where {ONE} returning id",
    "delete": f"delete from uploads where {ONE} returning id",
    "end": f"update uploads set state = 'canceled', failure_message = 'by hand' where {ONE} returning id",
}
"""What people do to rows while they are worked on; the last act on a row counts."""
