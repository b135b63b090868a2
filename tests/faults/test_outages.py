"""An outage of the server longer than a lease: finished work is recorded, the rest runs again, nothing is charged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from howdah import Howdah, Transaction
from howdah.jobs.store import JobStore
from howdah.node.heartbeat import gap_of
from howdah.postgres import migrate, sql
from howdah.postgres.database import Database
from howdah.worker.worker import Worker
from howdah_lab.torture.servers.single import Single
from kit.node import EVENTUALLY_TIMEOUT, ended, eventually, node, quick
from table.ddl import ddl

pytestmark = pytest.mark.anyio

LEASE = 3.0
OUTAGE = 2 * LEASE
FLUSHED = 0.8
"""Seconds after which a claim, which commits asynchronously, is on disk: three rounds of the WAL writer and more."""
OUTCOMES = "select kind, state, attempt, resets from howdah.jobs order by id"


@pytest.fixture
async def single() -> AsyncIterator[Single]:
    async with Single({"fsync": "off"}) as single:
        await migrate.migrate(Database(single.dsn))
        yield single


async def outcomes(single: Single, jobs: int) -> Counter[tuple[str, str, int, int]]:
    """Kind, state, attempts and resets of the jobs once all are over."""

    async def over() -> list[asyncpg.Record] | None:
        conn = await asyncpg.connect(single.dsn)
        try:
            rows = await conn.fetch(OUTCOMES)
        finally:
            await conn.close()
        return rows if all(row["state"] in ("done", "failed") for row in rows) else None

    rows = await eventually(over, 2 * EVENTUALLY_TIMEOUT)
    assert len(rows) == jobs
    return Counter(tuple(row) for row in rows)


def by_clock(worker: Worker) -> None:
    """Give up leases by the clock of the node."""
    oldest = time.monotonic() - LEASE
    worker.lose([token for token, lease in worker._leases.items() if lease.renewed < oldest], "by the clock")


@pytest.mark.parametrize("control", [None, "no grace", "by clock"])
async def test_an_outage_longer_than_a_lease_is_charged_to_no_job(
    single: Single, control: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the controls, a reset comes before the nodes, or nodes give up their leases by their own clock."""
    if control == "by clock":
        monkeypatch.setattr(Worker, "stop_unrenewed", by_clock)
    app = Howdah(single.dsn)
    runs: Counter[str] = Counter()
    begun = asyncio.Event()

    @app.task(max_attempts=1)
    async def finishes() -> None:
        """End well while the server is away."""
        runs["finishes"] += 1
        await asyncio.sleep(LEASE / 2)

    @app.task(max_attempts=1)
    async def goes_on() -> None:
        """Run longer than the node may go on without its lease."""
        runs["goes_on"] += 1
        if runs["goes_on"] <= 2:
            await asyncio.sleep(20 * LEASE)

    @app.task(max_attempts=1, transactional=True)
    async def writes(tx: Transaction) -> None:
        runs["writes"] += 1
        await tx.execute("select 1")
        if runs["writes"] == 2:
            begun.set()
        if runs["writes"] <= 2:
            await asyncio.sleep(LEASE / 2)
        await tx.execute("select 1")

    conn = await asyncpg.connect(single.dsn)
    await app.enqueue_many([task.job() for task in (finishes, goes_on, writes) for _ in range(2)])
    await conn.close()
    async with node(app, lease=LEASE, heartbeat=1.0, slots=6):
        await asyncio.wait_for(begun.wait(), EVENTUALLY_TIMEOUT)
        await asyncio.sleep(FLUSHED)
        await single.stop_immediately()
        await asyncio.sleep(OUTAGE)
        await single.start()
        if control == "no grace":
            conn = await asyncpg.connect(single.dsn)
            await conn.execute("select howdah.reset()")
            await conn.close()
        found = await outcomes(single, 6)
    await app.close()
    if control:
        assert any(state == "failed" for _, state, _, _ in found)
        return
    assert found == {(kind, "done", 1, 0): 2 for kind in ("finishes", "goes_on", "writes")}
    assert runs == {"finishes": 2, "goes_on": 4, "writes": 4}, "what had finished did not run again"


async def test_rows_of_a_table_are_not_charged_either(single: Single) -> None:
    app = Howdah(single.dsn)
    runs: Counter[str] = Counter()
    conn = await asyncpg.connect(single.dsn)
    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, 4)")
    await conn.close()

    async def upload(row: Any) -> None:
        """Two end well while the server is away; two run longer than the node may go on."""
        runs[row["id"]] += 1
        if runs[row["id"]] == 1:
            await asyncio.sleep(LEASE / 2 if row["id"] <= 2 else 20 * LEASE)

    app.table("uploads", stalled_after=LEASE, heartbeat=1.0, max_resets=0, slots=4).handler(upload)
    async with node(app, lease=LEASE, heartbeat=1.0):

        async def begun() -> bool:
            return len(runs) == 4

        await eventually(begun)
        await asyncio.sleep(FLUSHED)
        await single.stop_immediately()
        await asyncio.sleep(OUTAGE)
        await single.start()
        conn = await asyncpg.connect(single.dsn)

        async def over() -> Any:
            rows = await conn.fetch("select state::text, num_resets, num_failures from uploads")
            return rows if all(row["state"] in ("completed", "failed") for row in rows) else None

        rows = await eventually(over)
        await conn.close()
    await app.close()
    assert Counter(tuple(row) for row in rows) == {("completed", 0, 0): 4}
    assert sorted(runs.values()) == [1, 1, 2, 2]


@pytest.mark.parametrize("resets", [False, True], ids=["silent", "its resets go on"])
async def test_a_node_that_stops_renewing_while_others_work_loses_its_leases(
    app: Howdah, conn: Any, resets: bool
) -> None:
    """There is no outage, so its jobs are charged, and start again within the lease and five seconds."""
    begun: list[float] = []

    @app.task(max_attempts=2)
    async def work() -> None:
        begun.append(time.monotonic())
        if len(begun) == 1:
            await asyncio.sleep(60)

    made = await work.enqueue()
    dead = app.node(quick(lease=LEASE, heartbeat=1.0), upkeep=resets)
    running = asyncio.create_task(dead.run())

    async def first() -> bool:
        return bool(begun)

    await eventually(first)
    async with node(app, lease=LEASE, heartbeat=1.0):
        await asyncio.sleep(5.0)  # longer than the grace of a first node
        assert dead.heartbeat_thread is not None
        dead.heartbeat_thread.stop()
        silent = time.monotonic()
        row = await ended(conn, made.id)
        assert (row["state"], row["attempt"], row["resets"]) == ("done", 2, 1)
        assert begun[1] - silent < LEASE + 5
    dead.stop(now=True)
    await asyncio.wait_for(running, EVENTUALLY_TIMEOUT)


async def test_a_gap_is_noted_once_and_waited_for_a_bounded_time(conn: Any) -> None:
    async def note(gap: float = 10.0, grace: float = 4.0) -> bool:
        return bool(await conn.fetchval("select howdah.note_contact(false, $1::float8, $2::float8)", gap, grace))

    async def pass_by(seconds: float) -> None:
        await conn.execute(
            "update howdah.contact set since = since - $1 * interval '1 s', seen_at = seen_at - $1 * interval '1 s'",
            seconds,
        )

    await conn.execute("delete from howdah.contact")
    assert not await note(), "as after a crash"
    await pass_by(5)
    assert await note(), "there was no gap"
    assert await note(2.0), "a node with a shorter lease is there now"
    await pass_by(3)
    assert not await note(), "which was a gap for that node"
    await pass_by(5)
    assert await note(), "and was none for those that are left"
    for _ in range(5):
        await pass_by(11)
        assert not await note()
    await pass_by(11)
    assert await note(), "nodes that are blocked again and again reset nothing for a bounded time"
    await conn.execute("update howdah.contact set seen_at = now() + interval '1 hour', periods = 0")
    assert not await note(), "the clock of another server"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_reset_that_an_outage_held_back_resets_nothing(app: Howdah, conn: Any, guarded: bool) -> None:
    """It was allowed before the outage, and the server receives it after the outage, when all leases have expired."""

    @app.task(max_attempts=1)
    async def work() -> None: ...

    pool = await app.database.pool(1)
    store = JobStore(app.database, 1, kinds=["work"], queues=None, lease=2.0, poll=1, notify=False, pool=pool)
    await work.enqueue()
    await conn.execute("select howdah.note_contact(false, 2, 4)")
    await conn.execute("update howdah.contact set since = since - interval '1 hour'")
    assert len(await store.claim(1, {})) == 1
    judged = await store.contact.note()
    assert judged.nodes
    assert await store.reset(100, judged) == (0, 0, 0)

    await asyncio.sleep(gap_of(2.0) + 0.2)  # the outage
    assert await conn.fetchval("select expires_at < now() from howdah.lease")
    leases, _, _ = await store.reset(100, judged if guarded else judged._replace(until=None))
    await store.close()
    pool.terminate()
    assert leases == (0 if guarded else 1)
    assert await conn.fetchval("select state from howdah.jobs") == ("running" if guarded else "failed")


@pytest.mark.parametrize("held_back", [True, False], ids=["held back", "in time"])
async def test_a_control_plane_ends_no_lease_by_a_statement_that_an_outage_held_back(
    conn: Any, held_back: bool
) -> None:
    statements = sql.load("howdah.control_plane", schema="howdah")
    until = await conn.fetchval("select extract(epoch from now())::float8") + (-1 if held_back else 60)
    await conn.execute("""
        insert into howdah.node (id, name, remote, beat_at)
        values (7, 'h:1', true, now() - interval '1 hour');
        insert into howdah.row_lease (token, node, store, ids, heard_at)
        values (9, 7, 'uploads', '[1]', now() - interval '1 hour')""")

    silent = await conn.fetch(statements["set_offline"], 10.0, until)
    expired = await conn.fetch(statements["expire_rows"], "uploads", 10.0, 100, until)
    assert ([row["id"] for row in silent], [row["token"] for row in expired]) == (([], []) if held_back else ([7], [9]))
