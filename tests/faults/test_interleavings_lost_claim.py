"""A claim whose answer is lost: nobody knows of its lease, and nothing was started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from howdah import Howdah
from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from kit.broken_connections import Faults, WiredDatabase
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

NODE, NEIGHBOUR = 1, 2


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def stores(app: Howdah, direct: Database, faults: Faults) -> AsyncIterator[list[JobStore]]:
    """Those of two nodes, behind a wire that breaks, and ten jobs that may be tried once."""

    @app.task(max_attempts=1)
    async def note(n: int) -> None: ...

    await app.enqueue_many(note.job(n) for n in range(10))
    database = WiredDatabase(direct.dsn, faults)
    pool = await database.wired_pool(1)
    stores = [
        JobStore(database, node, kinds=["note"], queues=["default"], lease=3600, poll=1, notify=False, pool=pool)
        for node in (NODE, NEIGHBOUR)
    ]
    yield stores
    for store in stores:
        await store.close()
    pool.terminate()
    await app.close()


async def lose_a_claim(store: JobStore, faults: Faults, conn: Any, most: int) -> None:
    """The server carries out a claim, and nobody hears of it."""
    before = await conn.fetchval("select count(*) from howdah.lease")
    faults.arm(1, "after", about="-- claim:")
    with pytest.raises(ConnectionError):
        await store.claim(most, {})
    faults.disarm()
    assert await conn.fetchval("select count(*) from howdah.lease") == before + 1


async def test_what_nobody_heard_of_is_claimed_again_and_costs_no_attempt(stores, faults, conn):
    store, _ = stores
    held = await store.claim(3, {})
    await lose_a_claim(store, faults, conn, 4)

    again = await store.claim(100, {})
    assert len(again) == 7
    assert {job.attempt for job in again} == {1}
    assert not {job.id for job in held} & {job.id for job in again}
    assert await wrongs(conn) == []
    everything = [Ack(job, Outcome.OK, 1) for job in held + again]
    assert len(await store.ack(everything, [held[0].token, again[0].token])) == 10
    assert await conn.fetchval("select count(*) from howdah.lease") == 0
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0, "nothing was lost"


async def test_what_others_hold_is_left_to_them(stores, faults, conn):
    store, neighbour = stores
    await lose_a_claim(store, faults, conn, 4)
    theirs = await neighbour.claim(3, {})

    await store.claim(100, {})
    assert len(await neighbour.ack([Ack(job, Outcome.OK, 1) for job in theirs], [theirs[0].token])) == 3
    assert await wrongs(conn) == []
