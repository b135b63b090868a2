"""Rows that the table refuses to change, at random steps and in random ways: their neighbours do not notice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import asyncpg
import pytest

from howdah import Cancel, Poison, Snooze
from howdah.outcome import Ack, Outcome
from howdah.table.rejected import is_rejection
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

ROWS, HOSTILE = 24, 8
STEPS = (
    *(("queued", "processing"), ("errored", "processing"), ("processing", "processing"), ("processing", "completed")),
    *(("processing", "errored"), ("processing", "failed"), ("processing", "queued"), ("processing", "canceled")),
    *(("queued", "canceled"), ("errored", "canceled")),
)
WAYS = ("P0001", "23514", "23505", "22003", "ZZ001", "54000", "42501", "42703", "55000", "null", "late")
"""An SQLSTATE to raise; ``null``: the trigger drops the update; ``late``: it raises at the commit."""
TRIGGERS = """
create table rule (id int, was text, becomes text, how text);
create function hostile() returns trigger language plpgsql as $$
declare
    rule record;
begin
    for rule in select * from rule r where r.id = new.id and r.was = old.state and r.becomes = new.state loop
        if tg_when = 'AFTER' and rule.how = 'late' then
            raise exception 'refused at the commit';
        elsif tg_when = 'BEFORE' and rule.how = 'null' then
            return null;
        elsif tg_when = 'BEFORE' and rule.how <> 'late' then
            raise exception 'refused' using errcode = rule.how;
        end if;
    end loop;
    return new;
end $$;
create trigger hostile before update on uploads for each row execute function hostile();
create constraint trigger late after update on uploads deferrable initially deferred
    for each row execute function hostile();
"""
ENDS = {
    "ok": "completed",
    "retry": "completed",
    "poison": "failed",
    "snooze": "completed",
    "cancel": "canceled",
    "long": "completed",
    "silent": "completed",
    "unwanted": "canceled",
}
"""What rows of each kind come to."""


async def add(conn, kind):
    state = "processing" if kind == "silent" else "queued"
    insert = "insert into uploads (n, kind, state, cancel) values (1, $1, $2, $3)"
    await conn.execute(insert, kind, state, kind == "unwanted")


def ended(conn, ids):
    async def check():
        over = "id = any($1::int[]) and state in ('completed', 'failed', 'canceled')"
        return await conn.fetchval(f"select count(*) from uploads where {over}", ids) == len(ids)

    return check


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_neighbours_of_refused_rows_end_as_if_these_were_not_there(app, uploads, seed):
    rng = random.Random(seed)
    await uploads.execute(TRIGGERS)
    table = app.table("uploads", poll=0.1, stalled_after=6.0, heartbeat=0.3, retry_after=0.1, max_attempts=3)
    begun: Counter[int] = Counter()
    first = asyncio.Event()

    @table.handler
    async def execute(record):
        id, kind = record["id"], record["kind"]
        begun[id] += 1
        if kind == "retry" and begun[id] == 1:
            raise ValueError("again")
        if kind == "poison":
            raise Poison("bad")
        if kind == "snooze" and begun[id] == 1:
            return Snooze(0.1)
        if kind == "long":
            await first.wait()
        return Cancel("not wanted") if kind == "cancel" else None

    kinds = [rng.choice(list(ENDS)) for _ in range(ROWS)]
    for kind in kinds:
        await add(uploads, kind)
    hostile = rng.sample(range(1, ROWS + 1), HOSTILE)
    for id in hostile:
        for was, becomes in rng.sample(STEPS, rng.randint(1, 4)):
            await uploads.execute("insert into rule values ($1, $2, $3, $4)", id, was, becomes, rng.choice(WAYS))
    healthy = [id for id in range(1, ROWS + 1) if id not in hostile]
    short = [id for id in healthy if kinds[id - 1] != "long"]

    async with node(app, slots=ROWS, grace=1.0), node(app, slots=6, grace=1.0):
        await eventually(ended(uploads, short), 60)
        first.set()
        await eventually(ended(uploads, healthy), 60)
    async with node(app, slots=ROWS, grace=1.0):
        await uploads.execute("truncate rule")
        await eventually(ended(uploads, [*range(1, ROWS + 1)]), 120)

    for row in await uploads.fetch("select * from uploads where id = any($1::int[])", healthy):
        kind = row["kind"]
        assert row["state"] == ENDS[kind], dict(row)
        assert begun[row["id"]] == {"retry": 2, "snooze": 2, "unwanted": 0}.get(kind, 1), dict(row)
        assert row["num_resets"] == (kind == "silent"), dict(row)
        assert row["num_failures"] == (kind in ("retry", "poison")), dict(row)


@pytest.mark.parametrize("how", WAYS)
async def test_a_batch_with_one_refused_row_is_claimed_and_recorded_without_it(app, uploads, store_for, how):
    await uploads.execute(TRIGGERS)
    for _ in range(4):
        await add(uploads, "ok")
    await uploads.execute(
        "insert into rule values (2, 'queued', 'processing', $1), (3, 'processing', 'completed', $1)", how
    )
    store = await store_for(app.table("uploads"))

    jobs = await store.claim(4, {})
    assert sorted(job.id for job in jobs) == [1, 3, 4]
    accepted = await store.ack([Ack(job, Outcome.OK, 5) for job in jobs], [jobs[0].token])
    assert {ack.job.id: ack.outcome for ack in accepted} == {1: Outcome.OK, 3: Outcome.FAILED, 4: Outcome.OK}


async def test_an_index_on_the_message_refuses_a_long_one_alone(app, uploads, rows, store_for):
    await uploads.execute("create index on uploads (failure_message)")
    store = await store_for(app.table("uploads"))
    await rows.add(3)
    jobs = await store.claim(3, {})
    rng = random.Random(1)
    long = "".join(chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(3000))  # cannot be compressed to fit into an index
    acks = [Ack(job, Outcome.RETRY, 5, delay=60.0, error="E", message=long if job.id == 2 else "m") for job in jobs]

    accepted = await store.ack(acks, [jobs[0].token])
    assert [ack.outcome for ack in accepted] == [Outcome.RETRY, Outcome.FAILED, Outcome.RETRY]
    assert "index row" in (await rows.one(2))["failure_message"]


async def test_what_is_wrong_with_the_statement_is_no_ones_fault(app, uploads, rows, store_for):
    """The negative control: a column that is gone fails no row."""
    store = await store_for(app.table("uploads"))
    await rows.add(2)
    jobs = await store.claim(2, {})
    await uploads.execute("alter table uploads rename num_failures to other")
    with pytest.raises(Exception, match="num_failures"):
        await store.ack([Ack(job, Outcome.OK, 5) for job in jobs], [jobs[0].token])
    assert await rows.states() == ["processing", "processing"]


async def test_a_row_policy_refuses_a_row_and_a_missing_privilege_does_not(uploads, rows):
    """Both have the SQLSTATE 42501."""
    await rows.add(2)
    await uploads.execute("create policy small on uploads using (true) with check (id <> 2)")
    await uploads.execute("alter table uploads enable row level security")
    role = f"limited_{random.SystemRandom().getrandbits(40)}"
    await uploads.execute(f"create role {role}")
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError) as missing:
            await as_role(uploads, role)
        await uploads.execute(f"grant select, update on uploads to {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError) as policy:
            await as_role(uploads, role)
    finally:
        await uploads.execute(f"drop owned by {role}")
        await uploads.execute(f"drop role {role}")
    assert (is_rejection(missing.value), is_rejection(policy.value)) == (False, True)


async def as_role(conn, role):
    async with conn.transaction():
        await conn.execute(f"set local role {role}")
        await conn.execute("update uploads set state = 'processing'")


async def test_rows_whose_cancel_a_trigger_drops_hold_up_no_other_cancel(app, uploads, store_for):
    await uploads.execute(TRIGGERS)
    for _ in range(6):
        await add(uploads, "unwanted")
    await uploads.execute("insert into rule select i, 'queued', 'canceled', 'null' from generate_series(1, 4) i")
    store = await store_for(app.table("uploads"))

    cancelled = [await store.cancel(2) for _ in range(3)]
    assert sum(cancelled) == 2, "two at a time, and the first ones cannot be cancelled"
    assert [
        tuple(row) for row in await uploads.fetch("select id from uploads where state = 'canceled' order by id")
    ] == [
        (5,),
        (6,),
    ]
