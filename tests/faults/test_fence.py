"""What a server forgets in a crash or a failover is not given out again: tokens of leases and ids of nodes."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from howdah import Howdah, WorkerOptions
from howdah.jobs.store import JobStore
from howdah.node import registry
from howdah.node.registry import new_node
from howdah.outcome import Ack, Outcome
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from howdah_lab.torture.servers.child_programs import Folder
from howdah_lab.torture.servers.single import Single
from kit.job_invariants import wrongs
from kit.node import EVENTUALLY_TIMEOUT

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

KINDS = ["note"]
UNFLUSHED = {"wal_writer_delay": "10s"}
"""A claim commits asynchronously; so late is it written to disk."""
FROM_A_SEQUENCE = """
create or replace function howdah.next_token(newest bigint default 0) returns bigint volatile
language sql as $$ select nextval('howdah.token') $$
"""


@pytest.fixture(params=["fenced", "from a sequence"])
def fenced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether tokens and ids cannot come twice; in the control they come from sequences, as a server remembers them."""
    if request.param == "from a sequence":
        monkeypatch.setattr(registry, "new_node", lambda: 1)
    return bool(request.param == "fenced")


async def prepared(dsn: str, jobs: int, *, fenced: bool) -> Howdah:
    """An application with so many jobs."""
    await migrate.migrate(Database(dsn))
    conn = await Database(dsn).connect("test")
    if not fenced:
        await conn.execute(FROM_A_SEQUENCE)
    app = Howdah(dsn)

    @app.task
    async def note(n: int) -> None: ...

    await app.enqueue_many(note.job(n) for n in range(jobs))
    await conn.execute("checkpoint")  # what the sequence gives out next has to be logged anew
    await conn.close()
    return app


@asynccontextmanager
async def joined(dsn: str, node: int | None = None) -> AsyncIterator[JobStore]:
    """The store of a node that registers here, or that registered elsewhere and comes back."""
    database = Database(dsn)
    if node is None:
        node = await registry.Registration(database, version="1", kinds=KINDS, options=WorkerOptions()).insert()
    pool = await database.pool(1)
    store = JobStore(database, node, kinds=KINDS, queues=None, lease=60, poll=1, notify=False, pool=pool)
    try:
        yield store
    finally:
        await store.close()
        pool.terminate()


async def all_wrongs(dsn: str) -> list[str]:
    conn = await Database(dsn).connect("test")
    found = await wrongs(conn)
    await conn.close()
    return found


def done(jobs: list[Any]) -> list[Ack]:
    return [Ack(job, Outcome.OK, 1) for job in jobs]


async def test_a_claim_that_a_crash_forgot_ends_nothing_of_the_next_one(fenced: bool):
    async with Single(UNFLUSHED) as server:
        app = await prepared(server.dsn, 30, fenced=fenced)
        async with joined(server.dsn) as store:
            forgotten = await store.claim(20, {})
            await server.crash()
            await server.start()
            await server.writable(4 * EVENTUALLY_TIMEOUT)
            conn = await Database(server.dsn).connect("test")
            assert await conn.fetchval("select count(*) from howdah.lease") == 0, "the claim was flushed after all"
            await conn.close()
            fresh = await eventual_claim(store, 10)
            accepted = await store.ack(done(forgotten), [forgotten[0].token])

            assert (accepted == []) == fenced
            assert (await all_wrongs(server.dsn) == []) == fenced
            if fenced:
                assert len(await store.ack(done(fresh), [])) == 10
                assert len(await store.ack(done(await store.claim(30, {})), [])) == 20
                assert await all_wrongs(server.dsn) == []
        await app.close()


async def eventual_claim(store: JobStore, most: int) -> list[Any]:
    """Claim over a connection that broke; the first try may be the one that finds out."""
    for left in reversed(range(3)):
        try:
            return await store.claim(most, {})
        except Exception:
            if not left:
                raise
    raise AssertionError


@pytest.fixture
def copy() -> Iterator[Any]:
    """Copies a server that is stopped: a standby promoted without what its primary did afterwards."""
    with ExitStack() as stack:

        def start(server: Single) -> str:
            folder = Folder()
            stack.callback(folder.remove)
            home = folder.path / "server"
            subprocess.run(["cp", "-a", server.folder.path / "server", home], check=True)  # and its owner
            standby = stack.enter_context(embedded.start(home, settings={"max_connections": "50"}))
            return standby.dsn_for("postgres")

        yield start


async def test_a_node_of_the_old_primary_ends_nothing_on_the_new_one(fenced: bool, copy: Any):
    async with Single() as primary:
        app = await prepared(primary.dsn, 30, fenced=fenced)
        await app.close()
        await primary.stop_immediately()
        promoted = copy(primary)
        await primary.start()
        await primary.writable(4 * EVENTUALLY_TIMEOUT)

        async with joined(primary.dsn) as frozen:
            old = await frozen.claim(20, {})
            node = frozen._node
        async with joined(promoted) as living, joined(promoted, node) as woken:
            new = await living.claim(10, {})
            accepted = await woken.ack(done(old), [old[0].token])

            assert (accepted == []) == fenced
            assert (await all_wrongs(promoted) == []) == fenced
            if fenced:
                assert node != living._node
                assert len(await living.ack(done(new), [])) == 10
                assert len(await living.ack(done(await living.claim(30, {})), [])) == 20


async def test_tokens_rise_and_fit_into_json(conn):
    tokens = [row[0] for row in await conn.fetch("select howdah.next_token() from generate_series(1, 5000)")]
    assert len(set(tokens)) == 5000, "no two claims have the same"
    await conn.execute("select pg_sleep(0.001)")
    assert max(tokens) < await conn.fetchval("select howdah.next_token()") < 2**53
    ahead = 2**50  # as of a server whose clock was ahead
    assert ahead < await conn.fetchval("select howdah.next_token($1)", ahead) < ahead + 2**10


def test_ids_of_nodes_do_not_repeat():
    nodes = {new_node() for _ in range(10_000)}
    assert len(nodes) > 9_990, "a few of ten thousand may meet among two thousand million"
    assert 2**20 <= min(nodes) < max(nodes) < 2**31
