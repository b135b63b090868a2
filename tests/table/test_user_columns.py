"""What users have in their tables besides: all of it stays as it is."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit

import pytest

from howdah import Howdah
from kit.node import drain, eventually, node
from table.ddl import ddl

pytestmark = pytest.mark.anyio


async def test_columns_and_triggers_of_the_user_are_left_alone(app, conn, rows):
    await conn.execute(
        ddl(
            extra="must text not null default 'x', made text generated always as (must || '!') stored,"
            " n int not null check (n > 0), secret bytea"
        )
    )
    await conn.execute(
        "create table audit (old text, new text); create function note() returns trigger language plpgsql as $$"
        " begin insert into audit values (old.state, new.state); return new; end $$;"
        " create trigger note after update of state on uploads for each row"
        " when (old.state is distinct from new.state) execute function note()"
    )
    await conn.execute("insert into uploads (n, secret) values (5, '\\xff00')")
    table = app.table("uploads")
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append((record["must"], record["made"], record["n"]))

    await drain(app)
    row = await rows.one()
    assert seen == [("x", "x!", 5)]
    assert (row["must"], row["made"], row["n"], row["secret"]) == ("x", "x!", 5, b"\xff\0")
    audit_rows = [tuple(each) for each in await conn.fetch("select * from audit")]
    assert audit_rows == [("queued", "processing"), ("processing", "completed")]


async def test_a_partitioned_table_is_worked_on(app, conn, rows):
    await conn.execute(
        ddl(id="bigint generated always as identity", extra="region text, primary key (id, region)")
        + " partition by list (region)"
    )
    await conn.execute("create table uploads_a partition of uploads for values in ('a')")
    await conn.execute("create table uploads_b partition of uploads for values in ('b')")
    await conn.execute(
        "insert into uploads (region) select case i % 2 when 0 then 'a' else 'b' end from generate_series(1, 40) i"
    )
    table = app.table("uploads", retry_after=0, order_by=["region", "id"])
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["id"])
        if record["id"] == 7 and seen.count(7) == 1:
            raise ValueError

    async with node(app):
        await eventually(lambda: _all(conn, "completed"))
    assert sorted(seen) == sorted([*range(1, 41), 7])


async def _all(conn, state):
    return await conn.fetchval("select bool_and(state = $1) from uploads", state)


async def test_row_level_security_holds(direct, uploads, rows):
    await uploads.execute(
        """
        do $$ begin create role tenant login password 'tenant'; exception when duplicate_object then null; end $$;
        grant usage on schema howdah to tenant;
        grant all on all tables in schema howdah to tenant;
        grant all on all sequences in schema howdah to tenant;
        grant execute on all functions in schema howdah to tenant;
        grant select, update on uploads to tenant;
        alter table uploads enable row level security;
        create policy own on uploads to tenant using (kind = 'zip') with check (kind = 'zip');
        """
    )
    await rows.add(2)
    await rows.add(2, kind="tar")
    parts = urlsplit(direct.dsn)
    theirs = Howdah(urlunsplit(parts._replace(netloc=f"tenant:tenant@{parts.netloc.rpartition('@')[2]}")))
    table = theirs.table("uploads")

    @table.handler
    async def execute(record) -> None: ...

    await drain(theirs)
    assert await rows.states() == ["completed", "completed", "queued", "queued"]


async def test_a_column_dropped_under_our_feet_is_an_outage_and_no_crash(app, uploads, rows, caplog):
    table = app.table("uploads", poll=0.1)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])

    await rows.add(1)
    async with node(app) as running_node:
        await eventually(lambda: _len(seen, 1))
        await uploads.execute("alter table uploads rename process_after to gone")
        await rows.add(2)
        await eventually(lambda: _told(caplog))
        await asyncio.sleep(2.0)
        assert running_node.ready
        assert len(seen) == 1
        failures = [record for record in caplog.records if "claim failed" in record.message]
        assert len(failures) == 1, "told once"
        assert "process_after" in failures[0].message
        await uploads.execute("alter table uploads rename gone to process_after")
        await eventually(lambda: _len(seen, 3))
    assert await rows.states() == ["completed"] * 3


async def _told(caplog):
    return "claim failed" in caplog.text


async def _len(what, n):
    return len(what) == n


async def test_a_view_broken_under_our_feet_charges_no_row(app, uploads, rows):
    await uploads.execute("create function f(int) returns int language sql as 'select $1'")
    await uploads.execute("create view v as select id, f(n) as n from uploads")
    table = app.table("uploads", view="v", poll=0.1)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])

    async with node(app):
        await uploads.execute(
            "create or replace function f(int) returns int language plpgsql as $$ begin raise 'broken'; end $$"
        )
        await rows.add(3)
        await asyncio.sleep(1.5)
        assert seen == []
        await uploads.execute("create or replace function f(int) returns int language sql as 'select $1'")
        await eventually(lambda: _all(uploads, "completed"))
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0


async def test_a_locked_table_is_waited_for(app, uploads, rows, direct):
    app_ = Howdah(app.database.dsn)
    table = app_.table("uploads", poll=0.1, stalled_after=6.0, heartbeat=0.3)
    seen = []

    @table.handler
    async def execute(record) -> None:
        seen.append(record["n"])
        await asyncio.sleep(1.0)

    await rows.add(3)
    other = await direct.connect("other")
    async with node(app_):
        await eventually(lambda: _len(seen, 3))
        async with other.transaction():
            await other.execute("lock table uploads in access exclusive mode")
            await asyncio.sleep(3.0)
        await rows.add(2)
        await eventually(lambda: _all(uploads, "completed"))
    await other.close()
    assert len(seen) == 5
    assert await uploads.fetchval("select sum(num_resets + num_failures) from uploads") == 0


async def test_many_tables_and_tasks_share_a_node(app, uploads, rows):
    await uploads.execute(ddl("downloads"))
    await uploads.execute("insert into downloads select from generate_series(1, 30)")
    await rows.add(30)
    running = {"shared": 0, "own": 0}
    most = dict(running)

    async def work(kind):
        running[kind] += 1
        most[kind] = max(most[kind], running[kind])
        await asyncio.sleep(0.02)
        running[kind] -= 1

    @app.task
    async def task() -> None:
        await work("shared")

    @app.table("uploads").handler
    async def upload(record) -> None:
        await work("shared")

    @app.table("downloads", slots=2).handler
    async def download(record) -> None:
        await work("own")

    await app.enqueue_many(task.job() for _ in range(30))
    await drain(app, slots=5)
    assert most == {"shared": 5, "own": 2}
    assert await rows.states() == ["completed"] * 30
