"""The token of a claim: it cannot come twice, and what was claimed under it without an answer is released."""

from __future__ import annotations

from contextlib import AsyncExitStack

import asyncpg
import pytest

from howdah import Howdah
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.table.plan import TablePlan
from howdah.table.store import TableStore
from howdah_lab.torture.guards import asynchronous_commits
from howdah_lab.torture.servers.single import Single
from kit.node import EVENTUALLY_TIMEOUT, eventually
from table.ddl import ddl

pytestmark = pytest.mark.anyio

FROM_A_SEQUENCE = """
create or replace function howdah.next_token(newest bigint default 0) returns bigint volatile
language sql as $$ select nextval('howdah.token') $$
"""
ASYNCHRONOUSLY = "alter database postgres set synchronous_commit = off"
"""Also the token, which is drawn before the claim, is not flushed."""


@pytest.mark.stories
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "from a sequence"])
async def test_a_crash_right_after_a_claim_gives_no_token_twice(fenced):
    """The claim is forgotten, and so is the state of any sequence: the next claim has another token all the same.

    In the control the token is a number of a sequence, and the same row is begun twice under it.
    """
    # claims commit asynchronously; nothing else shall flush them before the crash
    settings = {"wal_writer_delay": "10s", "autovacuum": "off"}
    async with Single(settings) as own_server, AsyncExitStack() as stack:
        database = Database(own_server.dsn)
        await migrate.migrate(database)
        conn = await asyncpg.connect(own_server.dsn)
        if not fenced:
            await conn.execute(FROM_A_SEQUENCE)
            await conn.execute(ASYNCHRONOUSLY)
            stack.enter_context(asynchronous_commits("flush"))
        await conn.execute(ddl())
        await conn.execute("insert into uploads default values")
        await conn.execute("select setval('howdah.token', 1000)")
        await conn.execute("checkpoint")
        await conn.close()
        check = await database.connect("check")
        plan = await TablePlan.make(check, Howdah(own_server.dsn).table("uploads").options, "howdah")
        check.terminate()
        pool = await database.pool(1)
        store = TableStore(database, plan, pool=pool)
        try:
            [first] = await store.claim(1, {})
            await own_server.crash()
            await own_server.start()
            await own_server.writable(4 * EVENTUALLY_TIMEOUT)

            async def again():
                try:
                    return await store.claim(1, {})
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    return []

            [second] = await eventually(again)
        finally:
            await store.close()
            pool.terminate()
    assert first.id == second.id, "the claim was not forgotten: the test shows nothing"
    assert (first.token != second.token) == fenced


@pytest.mark.parametrize("late", [False, True])
async def test_a_claim_that_was_not_answered_is_released_by_its_token(app, uploads, rows, store_for, late, direct):
    """Also one that commits only after the first try to release it."""
    store = await store_for(app.table("uploads"))
    await rows.add(3)
    fetch, lost, kept = store._claims.fetch, [], []

    async def fail_once(statement, *args, **more):
        if "lease due rows" in statement and not lost:
            lost.append(args[2])
            if late:
                kept.append((statement, args))
            else:
                await fetch(statement, *args, **more)
            raise ConnectionResetError("the answer is lost")
        return await fetch(statement, *args, **more)

    store._claims.fetch = fail_once
    with pytest.raises(ConnectionResetError):
        await store.claim(2, {})
    if late:
        assert len(await store.claim(1, {})) == 1
        for statement, args in kept:
            await uploads.fetch(statement, *args)
        assert await uploads.fetchval("select count(*) from uploads where lease_token = $1", lost[0]) == 2
        store._claiming._released_at = float("-inf")
    jobs = await store.claim(3, {})

    assert [job.id for job in jobs] == ([2, 3] if late else [1, 2, 3])
    assert lost[0] not in {job.token for job in jobs}
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0


@pytest.mark.parametrize("way", ["raise exception 'no'", "return null"])
async def test_a_row_that_cannot_go_back_holds_back_no_other_of_its_claim(app, uploads, rows, store_for, way):
    store = await store_for(app.table("uploads"))
    await rows.add(6)
    jobs = await store.claim(6, {})
    await uploads.execute(
        f"""
        create function refuse() returns trigger language plpgsql as $$ begin
            if old.n = 3 and new.state = 'queued' then {way}; end if; return new; end $$;
        create trigger refuse before update on uploads for each row execute function refuse()
        """
    )
    store._claiming.release_later({jobs[0].token})  # as if the answer had been lost

    again = await store.claim(6, {})
    assert [job.id for job in again] == [1, 2, 4, 5, 6]
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0
    assert [(id, act) for id, act, _ in store.notes.take()] == [("3", "release")], "the doctor hears of it"


async def test_a_row_that_is_locked_when_its_lease_is_handed_back_goes_back_later(
    app, uploads, rows, store_for, direct
):
    store = await store_for(app.table("uploads"))
    await rows.add(3)
    jobs = await store.claim(3, {})
    other = await direct.connect("user")
    transaction = other.transaction()
    await transaction.start()
    await other.execute("update uploads set n = n where id = 2")
    assert await store.release([jobs[0].token]) == 2
    assert [job.id for job in await store.claim(3, {})] == [1, 3]
    await transaction.commit()
    other.terminate()

    store._claiming._released_at = float("-inf")
    assert [job.id for job in await store.claim(3, {})] == [2]
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0
