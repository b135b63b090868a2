"""Rows whose update the table refuses: they are skipped or fail alone, with the database's message."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import telemetry
from howdah.diagnose.doctor.work import TableDoctor
from howdah.outcome import Ack, Outcome
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

RAISES = """
create function refuse() returns trigger language plpgsql as $$ begin {body} return new; end $$;
create trigger refuse before update on uploads for each row execute function refuse()
"""


@pytest.fixture
def emitted():
    """What telemetry says of refused rows."""
    found = []
    stop = telemetry.subscribe(lambda name, facts: found.append(facts) if name == "table.refused" else None)
    yield found
    stop()


async def raising(conn, condition, message="no"):
    """Have a trigger refuse updates."""
    await conn.execute(RAISES.format(body=f"if {condition} then raise exception '{message}'; end if;"))


async def count(conn, condition):
    return await conn.fetchval(f"select count(*) from uploads where {condition}")


def counted(conn, condition, rows):
    async def check():
        return await count(conn, condition) == rows

    return check


async def test_one_row_of_each_customer_is_claimed_at_a_time(app, uploads, rows):
    await uploads.execute("create unique index on uploads (kind) where state = 'processing'")
    table = app.table("uploads", poll=0.1)
    running, most, seen = [], 0, []

    @table.handler
    async def execute(record) -> None:
        nonlocal most
        assert record["kind"] not in running
        running.append(record["kind"])
        most = max(most, len(running))
        await asyncio.sleep(0.05)
        seen.append(record["n"])
        running.remove(record["kind"])

    await rows.add(12)
    await uploads.execute("update uploads set kind = 'customer ' || id % 3")
    async with node(app, slots=10), node(app, slots=10):
        await eventually(counted(uploads, "state = 'completed'", 12))
    assert sorted(seen) == list(range(1, 13)), "each once"
    assert most > 1, "customers did not run side by side"
    assert await count(uploads, "num_resets + num_failures > 0") == 0


async def test_a_claim_goes_on_behind_many_refused_rows(app, uploads, rows, store_for):
    await uploads.execute("create unique index on uploads (kind) where state = 'processing'")
    await rows.add(60, kind="a")
    await rows.add(3, kind="b")
    await rows.add(1, kind="c")
    store = await store_for(app.table("uploads"))

    found = []
    for _ in range(5):
        found += await store.claim(4, {})
    assert sorted(job.id for job in found) == [1, 61, 64]


async def test_an_old_row_that_breaks_a_new_check_is_left_and_named(app, uploads, rows, database, emitted, caplog):
    await rows.add(20)
    await uploads.execute("alter table uploads add constraint small check (n <> 7) not valid")
    table = app.table("uploads", poll=0.1)

    @table.handler
    async def execute(record) -> None: ...

    async with node(app):
        await eventually(counted(uploads, "state = 'completed'", 19))
        await eventually(lambda: named(database, table, "row 7", '"small"'))
        assert (await rows.one(7))["state"] == "queued"
        await asyncio.sleep(1.5)
        await uploads.execute("alter table uploads drop constraint small")
        await eventually(counted(uploads, "state = 'completed'", 20))
    assert [(facts["act"], facts["ids"]) for facts in emitted] == [("claim", [7])], "told once"
    assert sum("refuses" in record.message for record in caplog.records) == 1, "logged once"


async def named(database, table, *words):
    """Whether the doctor says so."""

    async def run(statement, *values, **_):
        conn = await database.connect("doctor")
        try:
            return await conn.fetch(statement, *values)
        finally:
            conn.terminate()

    async def fetch(_verb, *_values):
        return [{"nodes": 1}]

    findings = await TableDoctor(database, fetch, run).examine(table.options)
    return any(all(word in each.fact for word in words) for each in findings)


async def test_rows_of_a_dead_node_come_back_around_one_that_cannot(app, uploads, rows, database):
    """And rows that are no longer wanted are cancelled."""
    await uploads.execute("create unique index on uploads (kind) where state = 'queued'")
    await uploads.execute(
        "insert into uploads (n, kind, state) select i, 'url ' || i, 'processing' from generate_series(1, 10) i"
    )
    await uploads.execute(
        "insert into uploads (n, kind, process_after) values (11, 'url 4', now() + interval '1 hour')"
    )
    await uploads.execute("insert into uploads (n, kind, cancel) values (12, 'unwanted', true)")
    table = app.table("uploads", poll=0.1, stalled_after=1.0)

    @table.handler
    async def execute(record) -> None: ...

    async with node(app):
        await eventually(counted(uploads, "state = 'completed'", 9))
        await eventually(counted(uploads, "state = 'canceled'", 1))
        await eventually(lambda: named(database, table, "row 4", "duplicate key"))
        assert (await rows.one(4))["state"] == "processing"
        await uploads.execute("delete from uploads where n = 11")
        await eventually(counted(uploads, "state = 'completed'", 10))


async def test_a_check_at_completion_fails_its_row_alone(app, uploads, rows, emitted):
    await uploads.execute("alter table uploads add check (state <> 'completed' or n <> 3)")
    table = app.table("uploads", poll=0.1, stalled_after=30)

    @table.handler
    async def execute(record) -> None: ...

    await rows.add(20)
    began = 0.0
    async with node(app, grace=1.0):
        await eventually(counted(uploads, "state = 'completed'", 19))
        await eventually(counted(uploads, "state = 'failed'", 1))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert "violates check constraint" in (await rows.one(3))["failure_message"]
    assert [(facts["act"], facts["ids"]) for facts in emitted] == [("ack", [3])]


async def test_an_outcome_that_cannot_be_written_in_any_way_holds_up_neither_neighbours_nor_the_end(
    app, uploads, rows, emitted
):
    await raising(uploads, "old.n = 3 and new.state <> 'processing'")
    table = app.table("uploads", poll=0.1, stalled_after=30)

    @table.handler
    async def execute(record) -> None: ...

    await rows.add(5)
    async with node(app, grace=1.0):
        await eventually(counted(uploads, "state = 'completed'", 4))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert (await rows.one(3))["state"] == "processing"
    assert emitted


async def test_a_counter_at_its_end_fails_its_row_alone(app, uploads, rows, store_for):
    await uploads.execute("alter table uploads alter num_failures type smallint")
    store = await store_for(app.table("uploads"))
    await rows.add(3)
    await rows.set(2, num_failures=32767)
    jobs = await store.claim(3, {})
    acks = [Ack(job, Outcome.RETRY, 5, delay=60.0, error="E", message="m") for job in jobs]
    accepted = await store.ack(acks, [jobs[0].token])

    assert [ack.outcome for ack in accepted] == [Outcome.RETRY, Outcome.FAILED, Outcome.RETRY]
    assert await rows.states() == ["errored", "failed", "errored"]
    assert "smallint out of range" in (await rows.one(2))["failure_message"]


async def test_a_refused_heartbeat_loses_no_other_row(app, uploads, rows):
    await raising(uploads, "old.n = 2 and old.state = 'processing' and new.state = 'processing'", "no heartbeat")
    table = app.table("uploads", poll=0.1, stalled_after=2.0, heartbeat=0.3)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])
        await asyncio.sleep(4.0)

    await rows.add(5)
    async with node(app, slots=5):
        await eventually(counted(uploads, "state = 'completed'", 4))
        await eventually(counted(uploads, "state = 'failed'", 1))
    assert sorted(seen) == [1, 2, 3, 4, 5], "each once"
    assert await count(uploads, "num_resets > 0") == 0
    assert "no heartbeat" in (await rows.one(2))["failure_message"]


async def test_an_end_that_a_trigger_drops_is_not_taken_for_one(app, uploads, rows, emitted):
    await uploads.execute(RAISES.format(body="if new.state = 'completed' and new.n = 2 then return null; end if;"))
    table = app.table("uploads", poll=0.1, stalled_after=1.0)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])

    await rows.add(3)
    async with node(app):
        await eventually(counted(uploads, "state in ('completed', 'failed')", 3))
    assert sorted(seen) == [1, 2, 3], "each once"
    assert "trigger" in (await rows.one(2))["failure_message"]


async def test_people_act_on_the_neighbours_of_a_refused_row(app, uploads, rows):
    from howdah.table.admin import TableAdmin

    await rows.add(6, state="failed")
    await raising(uploads, "new.n = 4")
    admin = await TableAdmin.open(uploads, app.table("uploads").options, "howdah")
    for act, error in ((admin.retry, "no"), (admin.requeue, "no"), (admin.cancel, None)):
        result = await act([1, 2, 3, 4, 5, 6])
        assert [each.id for each in result if each.did] == [1, 2, 3, 5, 6]
        [left] = [each for each in result if not each.did]
        assert (left.id, left.error) == (4, error)
    assert await rows.states() == ["canceled"] * 3 + ["failed"] + ["canceled"] * 2


async def test_nothing_refused_is_one_statement(app, uploads, rows, store_for, monkeypatch):
    """The fast path, counted by the server."""
    monkeypatch.setattr("howdah.table.reset.SLOW", 60.0)  # a look on a busy machine is repeated all the same
    store = await store_for(app.table("uploads"))
    await rows.add(50)
    await store.reset(100)  # says once what this node declares
    statements = []
    for session in (store._claims, store._acks, store._resets):
        fetch = session.fetch

        def counting(statement, *args, fetch=fetch, **more):
            statements.append(statement)
            return fetch(statement, *args, **more)

        session.fetch = counting
    jobs = await store.claim(50, {})
    await store.ack([Ack(job, Outcome.OK, 5) for job in jobs], [jobs[0].token])
    await store.reset(100)
    await store.cancel(100)
    assert len(jobs) == 50
    assert len(statements) == 6, "token, claim, read, ack, look for silent rows, cancel"
