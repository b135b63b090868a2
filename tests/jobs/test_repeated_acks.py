"""Plain successes that are reported twice: their reply was lost, or another report about the lease is under way."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import asyncpg
import pytest

from howdah import Howdah
from howdah.jobs.ack import AckRecorder
from howdah.jobs.hold import Holds
from howdah.jobs.store import JobStore
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from howdah.postgres.database import Database
from kit.interleave import meet, three_connections
from kit.interleave_jobs import SingleConnection
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

NODE = 1
STATEMENTS = sql.load("howdah.jobs", schema="howdah")
GONE = r"and not exists \(\s+select from \S+gone g .*? offset 0\)"
NOT_FRESH = "update howdah.done set finished_at = finished_at - interval '2 minutes'"
"""A job that succeeded less than a minute ago is not deleted while its lease is open."""


@pytest.fixture
async def store(app: Howdah, direct: Database) -> AsyncIterator[JobStore]:
    """The store of a node that only does what the test says, and four jobs."""

    @app.task(max_attempts=2)
    async def note(n: int) -> None: ...

    pool = await direct.pool(1)
    await app.enqueue_many(note.job(n) for n in range(4))
    store = JobStore(direct, NODE, kinds=["note"], queues=None, lease=30, poll=1, notify=False, pool=pool)
    yield store
    await store.close()
    pool.terminate()


def ended(job: Any, outcome: Outcome = Outcome.OK) -> Ack:
    return Ack(job, outcome, 1)


async def acked(
    conn: Any,
    *acks: Ack,
    statements: Mapping[str, str] = STATEMENTS,
    interrupted: bool = False,
    alone: bool = True,
) -> list[Ack]:
    """Report over a connection of the test's own."""
    through: Any = SingleConnection(conn)
    recorder = AckRecorder(through, statements, lambda _delay: None, Holds(through, statements, []))
    recorder._interrupted = interrupted
    return await recorder.ack(NODE, acks, [], alone=alone)


def releasing(token: int) -> Callable[[Any], Awaitable[Any]]:
    """Hand back what is left of a lease, as a node does when it stops."""
    return lambda conn: conn.fetch(STATEMENTS["release"], NODE, [token])


def without(guard: str) -> dict[str, str]:
    """The statements, the quick one without one of its conditions."""
    quick, found = re.subn(guard, "", STATEMENTS["ack_done"])
    assert found == 1
    return {**STATEMENTS, "ack_done": quick}


async def remaining(conn: Any) -> list[int]:
    return [row[0] for row in await conn.fetch("select remaining from howdah.lease")]


@pytest.fixture
def lose_reply(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it to lose the reply to the next quick ack: it is carried out, and the connection breaks."""
    fetch = asyncpg.Connection.fetch
    wanted: list[bool] = []

    async def cut(self: Any, statement: str, *args: Any, **options: Any) -> Any:
        rows = await fetch(self, statement, *args, **options)
        if wanted and statement.startswith("-- ack_done") and wanted.pop():
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return rows

    monkeypatch.setattr(asyncpg.Connection, "fetch", cut)
    return lambda: wanted.append(True)


# ---------------------------------------------------------------- repeated after a lost reply


@pytest.fixture
async def unheard(store: JobStore, conn: Any, lose_reply: Callable[[], None]) -> Ack:
    """The success of one of two jobs under a lease: recorded two minutes ago, and the node did not hear of it."""
    one, _two = await store.claim(2, {})
    ack = ended(one)
    lose_reply()
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await store.ack([ack], [])
    assert ack.unsure
    assert await remaining(conn) == [1]
    await conn.execute(NOT_FRESH)
    return ack


async def test_an_ack_repeated_after_its_job_was_deleted_leaves_the_neighbour_its_lease(store, conn, unheard):
    await conn.execute("select * from howdah.delete($1)", [unheard.job.id])

    assert await store.ack([unheard], []) == []
    assert await remaining(conn) == [1]
    assert await wrongs(conn) == []


async def test_an_ack_repeated_is_answered_as_the_first_one(store, conn, unheard):
    assert await store.ack([unheard], []) == [unheard]
    assert unheard.outcome is Outcome.OK
    assert await remaining(conn) == [1]
    assert await wrongs(conn) == []


@pytest.mark.parametrize("known", [True, False], ids=["known to be repeated", "taken for the first one"])
async def test_an_ack_repeated_while_its_job_is_being_deleted(direct, store, unheard, known):
    """The control: the quick statement waits for the deleted row, and its snapshot does not show that the job left."""
    unheard.unsure = known
    async with three_connections(direct) as three:
        met = await meet(
            three,
            lambda conn: conn.fetch("select * from howdah.delete($1)", [unheard.job.id]),
            lambda conn: acked(conn, unheard, interrupted=True),
            commit=True,
        )
        assert [row["result"] for row in met.first] == ["deleted"]
        assert (await wrongs(three.watch) == []) == known
        assert (await remaining(three.watch) == [1]) == known


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_an_ack_that_the_server_carries_out_late_does_not_count_a_deleted_job_again(conn, unheard, guarded):
    """The node gave up waiting; the statement still runs, after the job was deleted."""
    await conn.execute("select * from howdah.delete($1)", [unheard.job.id])
    unheard.unsure = False
    await acked(conn, unheard, statements=STATEMENTS if guarded else without(GONE))

    assert (await wrongs(conn) == []) == guarded
    assert (await remaining(conn) == [1]) == guarded


# ---------------------------------------------------------------- two reports at once


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
async def test_a_success_that_waits_for_the_release_of_its_lease(direct, store, commit):
    one, _two = await store.claim(2, {})
    async with three_connections(direct) as three:
        met = await meet(three, releasing(one.token), lambda conn: acked(conn, ended(one)), commit=commit)

        assert met.waited
        assert len(met.second) == (0 if commit else 1)
        assert await wrongs(three.watch) == []
        assert await remaining(three.watch) == ([] if commit else [1])
        assert await three.watch.fetchval("select count(*) from howdah.done") == (0 if commit else 1)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
async def test_a_release_of_a_lease_that_waits_for_a_success(direct, store, commit):
    """As when a node stops while its ack, which it gave up waiting for, still runs on the server."""
    one, two = await store.claim(2, {})
    async with three_connections(direct) as three:
        met = await meet(three, lambda conn: acked(conn, ended(one)), releasing(one.token), commit=commit)

        assert met.waited
        assert await wrongs(three.watch) == []
        assert await remaining(three.watch) == []
        done = [row[0] for row in await three.watch.fetch("select id from howdah.done")]
        assert done == ([one.id] if commit else [])
        again = await store.claim(4, {})
        assert {one.id, two.id} - {job.id for job in again} == set(done)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_success_reported_after_the_same_job_was_handed_back(conn, store, guarded):
    one, _two = await store.claim(2, {})
    await acked(conn, ended(one, Outcome.RELEASED))
    result = await acked(conn, ended(one), statements=STATEMENTS if guarded else without(GONE))

    assert (result == []) == guarded
    assert (await wrongs(conn) == []) == guarded


@pytest.mark.parametrize("alone", [False, True], ids=["as of a worker over HTTP", "as of a node"])
async def test_a_success_reported_while_the_same_job_is_handed_back(direct, store, alone):
    """The control: why a node reports on a job once. A worker over HTTP may report twice at the same time."""
    one, _two = await store.claim(2, {})
    async with three_connections(direct) as three:
        met = await meet(
            three,
            lambda conn: acked(conn, ended(one, Outcome.RELEASED)),
            lambda conn: acked(conn, ended(one), alone=alone),
            commit=True,
        )
        assert met.waited
        assert (met.second == []) == (not alone)
        assert (await wrongs(three.watch) == []) == (not alone)


async def test_the_same_success_reported_twice_at_once_counts_once(direct, store):
    one, _two = await store.claim(2, {})
    async with three_connections(direct) as three:
        met = await meet(three, lambda conn: acked(conn, ended(one)), lambda conn: acked(conn, ended(one)), commit=True)

        assert met.waited
        assert [ack.outcome for ack in met.second] == [Outcome.OK]
        assert await remaining(three.watch) == [1]
        assert await wrongs(three.watch) == []


async def test_a_heartbeat_does_not_send_a_success_the_long_way(direct, store):
    """It moves the row of the lease while the ack waits for it, and the count stays."""
    one, _two = await store.claim(2, {})
    quick = {name: text for name, text in STATEMENTS.items() if name != "ack"}
    async with three_connections(direct) as three:
        met = await meet(
            three,
            lambda conn: conn.execute("update howdah.lease set expires_at = expires_at + interval '1 second'"),
            lambda conn: acked(conn, ended(one), statements=quick),
            commit=True,
        )
        assert met.waited
        assert [ack.outcome for ack in met.second] == [Outcome.OK]
        assert await remaining(three.watch) == [1]
