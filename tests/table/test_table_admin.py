"""Look at the rows of a table and act on them: only rows in the right state change."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from howdah import Columns, ConfigError, HowdahError, Where
from howdah.postgres.sql import identifier
from howdah.table import admin as admin_module
from howdah.table import ddl
from howdah.table.admin import RowActionResult, RowCount, TableAdmin
from howdah.table.contract import STATES
from howdah.table.options import TableOptions
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

HOSTILE = "up\"lo'ads; drop table x --"
REMAPPED = Columns(**{role: f"{role} \"of' mine" for role, _ in Columns().items()})


@pytest.fixture
def open_table(conn: Any) -> Any:
    async def open(table: str = "uploads", **settings: Any) -> TableAdmin:
        options = TableOptions(table=table, **settings)
        if await conn.fetchval("select to_regclass($1)", options.relation.quoted) is None:
            for statement in ddl.create(options):
                await conn.execute(statement)
        return await TableAdmin.open(conn, options, "howdah")

    return open


async def fill(conn: Any, *states: str) -> None:
    """Rows 1, 2, … in these states, each with a past."""
    await conn.execute(
        "insert into uploads (state, num_failures, num_resets, failure_message, started_at, finished_at, lease_token)"
        " select state, 2, 3, 'no', now(), now(), 7 from unnest($1::text[]) with ordinality s(state, n) order by n",
        list(states),
    )


async def results_of(answer: Any) -> list[tuple[Any, Any, str]]:
    return [(each.id, each.was, each.result) for each in await answer]


async def test_retry_puts_back_what_failed_and_nothing_else(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    await fill(conn, *STATES)

    assert await results_of(admin.retry([6, 1, 2, 3, 4, 5, 99, 2**63])) == [
        (6, "canceled", "left"),
        (1, "queued", "left"),
        (2, "processing", "left"),
        (3, "errored", "queued"),
        (4, "failed", "queued"),
        (5, "completed", "left"),
        (99, None, "left"),
        (2**63, None, "left"),
    ]
    states = [row["state"] for row in await conn.fetch("select state from uploads order by id")]
    assert states == ["queued", "processing", "queued", "queued", "completed", "canceled"]
    row = await conn.fetchrow("select * from uploads where id = 4")
    assert (row["num_failures"], row["num_resets"], row["failure_message"], row["lease_token"]) == (0, 0, None, None)
    assert (row["started_at"], row["finished_at"], row["process_after"]) == (None, None, None)


async def test_requeue_waits_and_leaves_alone_what_is_worked_on(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    await fill(conn, *STATES)

    assert [each.did for each in await admin.requeue([1, 2, 3, 4, 5, 6], 600)] == [True, False, True, True, True, True]
    rows = await conn.fetch(
        "select state, num_failures, process_after > now() + interval '9 minutes' as later from uploads order by id"
    )
    assert [tuple(row) for row in rows] == [
        ("queued", 2, True),
        ("processing", 2, None),
        ("queued", 2, True),
        ("queued", 0, True),
        ("queued", 0, True),
        ("queued", 0, True),
    ]


async def test_cancel_ends_what_waits_and_asks_for_the_rest(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    await fill(conn, *STATES)

    assert [each.result for each in await admin.cancel([1, 2, 3, 4, 5, 6, 7])] == [
        "canceled",
        "asked",
        "canceled",
        *["left"] * 4,
    ]
    rows = await conn.fetch("select state, cancel from uploads order by id")
    assert [tuple(row) for row in rows] == [
        ("canceled", True),
        ("processing", True),
        ("canceled", True),
        ("failed", False),
        ("completed", False),
        ("canceled", False),
    ]


async def test_a_row_that_runs_stops_when_it_is_cancelled(app: Any, conn: Any, open_table: Any) -> None:
    table = app.table("uploads")
    admin = await open_table()
    began = asyncio.Event()

    @table.handler
    async def execute(record: dict[str, Any]) -> None:
        began.set()
        await asyncio.sleep(60)

    await conn.execute("insert into uploads default values")
    async with node(app):
        await asyncio.wait_for(began.wait(), 30)
        assert await results_of(admin.cancel([1])) == [(1, "processing", "asked")]

        async def over() -> bool:
            return await conn.fetchval("select state from uploads") == "canceled"

        await eventually(over)


async def test_an_ack_that_comes_after_a_retry_changes_nothing(
    app: Any, conn: Any, open_table: Any, store_for: Any
) -> None:
    from howdah.outcome import Ack, Outcome

    admin = await open_table()
    store = await store_for(app.table("uploads"))
    await conn.execute("insert into uploads default values")
    [job] = await store.claim(1, {})
    await store.ack([Ack(job, Outcome.FAILED, 1)], [])
    await admin.retry([1])

    assert await store.ack([Ack(job, Outcome.FAILED, 1)], []) == []
    assert await conn.fetchval("select state from uploads") == "queued"


async def test_status_counts_what_lives_and_finds_the_oldest_that_may_run(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    assert (await admin.status()).states == {state: RowCount(0) for state in STATES}
    await fill(conn, "queued", "queued", "errored", "processing", "failed", "completed", "completed")
    await conn.execute("update uploads set queued_at = now() - interval '1 hour'")
    await conn.execute("update uploads set process_after = now() + interval '1 hour' where id = 1")
    await conn.execute("update uploads set process_after = now() - interval '5 minutes' where id = 2")
    await conn.execute("update uploads set process_after = now() - interval '10 minutes' where id = 3")

    status = await admin.status()
    assert {state: count.rows for state, count in status.states.items()} == {
        "queued": 2,
        "processing": 1,
        "errored": 1,
        "failed": 1,
        "completed": 2,
        "canceled": 0,
    }
    assert all(count.exact for count in status.states.values())
    assert status.due == 2
    assert status.oldest == pytest.approx(600, abs=30)


async def test_what_is_over_is_estimated_in_a_big_table(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    await conn.execute("alter table uploads set (autovacuum_enabled = off)")
    await conn.execute("insert into uploads (state) select 'completed' from generate_series(1, 900)")
    await conn.execute("insert into uploads (state) select 'failed' from generate_series(1, 100)")
    assert str((await admin.status(small=-1)).states["completed"]) == "?"

    await conn.execute("analyze uploads")
    await fill(conn, "queued", "queued")
    states = (await admin.status(small=-1)).states
    shown = {state: str(count) for state, count in states.items()}
    assert shown == {
        "queued": "2",
        "processing": "0",
        "errored": "0",
        "failed": "~100",
        "completed": "~900",
        "canceled": "~0",
    }


async def test_only_rows_the_table_is_for_are_counted(conn: Any, open_table: Any) -> None:
    await open_table()
    await conn.execute("alter table uploads add kind text")
    admin = await open_table("uploads u", where=Where("u.kind = $1 -- the rest is of others", "zip"))
    await conn.execute("insert into uploads (state, kind) values ('queued', 'zip'), ('queued', 'tar')")
    await conn.execute("insert into uploads (state, kind) values ('processing', 'zip'), ('processing', 'tar')")

    states = (await admin.status()).states
    assert (states["queued"].rows, states["processing"].rows) == (1, 1)


async def test_nothing_that_is_over_is_read_to_count_or_to_list_what_lives(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    await conn.execute("insert into uploads (state) select 'completed' from generate_series(1, 20000)")
    await fill(conn, "queued", "processing", "errored")
    await conn.execute("vacuum analyze uploads")
    _, statement, _ = admin_module.counting(admin._plan)

    await conn.execute("set enable_seqscan = off")
    rows = await conn.fetch(f"explain (analyze, costs off, timing off) {statement}")
    plan = "\n".join(row[0] for row in rows)
    assert "Seq Scan" not in plan
    assert "Rows Removed" not in plan
    assert [row.id for row in await admin.list("errored")] == [20003]


async def test_a_list_is_newest_first_and_goes_on_below_an_id(conn: Any, open_table: Any) -> None:
    admin = await open_table()
    await fill(conn, "queued", "failed", "completed", "failed", "failed")

    assert [row.id for row in await admin.list()] == [5, 4, 3, 2, 1]
    first = await admin.list("failed", limit=2)
    assert [row.id for row in first] == [5, 4]
    [last] = await admin.list("failed", before=first[-1].id)
    assert (last.id, last.state, last.failures, last.resets, last.message) == (2, "failed", 2, 3, "no")
    for wrong in ({"state": "done"}, {"limit": 0}, {"limit": 1001}):
        with pytest.raises(ConfigError):
            await admin.list(**wrong)


@pytest.mark.parametrize("type", ["uuid", "text", "int2", "int4"])
async def test_ids_of_every_type_are_understood(conn: Any, open_table: Any, type: str) -> None:
    lines = ddl.create(TableOptions(table="uploads"))
    await conn.execute(lines[0].replace("bigint generated always as identity", type))
    admin = await open_table()
    ids = {"uuid": [str(uuid.uuid4()), str(uuid.uuid4())], "text": ["a, b", "it's"]}.get(type, [5, 7])
    for id in ids:
        await conn.execute(f"insert into uploads (id, state) values ($1::text::{type}, 'failed')", str(id))

    assert [each.id for each in await admin.retry(ids)] == ids
    assert {row.id for row in await admin.list("queued")} == set(ids)
    assert [row.id for row in await admin.list(before=max(ids))] == [min(ids)]
    if type in ("int2", "int4"):
        assert await admin.cancel([2**40]) == [RowActionResult(id=2**40, was=None, result="left")]
    if type == "uuid":
        assert admin.read_id(ids[0].upper()) == ids[0]
        with pytest.raises(ConfigError, match="its ids are uuids"):
            admin.read_id("5")


async def test_hostile_names_and_other_columns_are_no_different(conn: Any, open_table: Any) -> None:
    admin = await open_table(identifier(HOSTILE), name="it", columns=REMAPPED)
    for _ in range(3):
        await conn.execute(f"insert into {identifier(HOSTILE)} default values")

    assert [each.result for each in await admin.cancel([1, 2])] == ["canceled", "canceled"]
    assert [each.result for each in await admin.requeue([1])] == ["queued"]
    assert [each.result for each in await admin.retry([2])] == ["left"]
    assert [(row.id, row.state) for row in await admin.list()] == [(3, "queued"), (2, "canceled"), (1, "queued")]
    status = await admin.status()
    assert (status.states["queued"], status.states["canceled"], status.due) == (RowCount(2), RowCount(1), 2)


async def test_a_state_that_is_an_enum_is_no_different(conn: Any, open_table: Any) -> None:
    await conn.execute(f"create type phase as enum ({', '.join(map(repr, STATES))})")
    lines = ddl.create(TableOptions(table="uploads"))
    for line in [lines[0].replace('"state" text', '"state" phase'), *lines[1:]]:
        await conn.execute(line)
    admin = await open_table()
    await conn.execute("insert into uploads (state) values ('queued'), ('failed'), ('completed')")

    assert [each.result for each in await admin.retry([1, 2])] == ["left", "queued"]
    assert [each.result for each in await admin.cancel([1])] == ["canceled"]
    assert [each.result for each in await admin.requeue([3], 60)] == ["queued"]
    assert [row.id for row in await admin.list("queued")] == [3, 2]
    assert (await admin.status()).states["queued"] == RowCount(2)


async def test_a_partitioned_table_is_no_different(conn: Any, open_table: Any) -> None:
    lines = ddl.create(TableOptions(table="uploads"))
    parted = lines[0].replace("generated always as identity primary key", "not null")
    await conn.execute(f"{parted} partition by range (id)")
    for at in (0, 10):
        await conn.execute(f"create table uploads_{at} partition of uploads for values from ({at}) to ({at + 10})")
    for line in [*lines[1:], "create index on uploads (id)"]:
        await conn.execute(line)
    admin = await open_table()
    await conn.execute("insert into uploads (id, state) select i, 'completed' from generate_series(1, 19) i")
    await conn.execute("update uploads set state = 'failed' where id in (3, 13)")
    await conn.execute("analyze")

    assert [each.result for each in await admin.retry([3, 13, 4])] == ["queued", "queued", "left"]
    assert [row.id for row in await admin.list("queued")] == [13, 3]
    states = (await admin.status(small=-1)).states
    assert (str(states["queued"]), str(states["completed"])) == ("2", "~17")


async def test_somebody_elses_lock_is_waited_for_only_so_long(
    conn: Any, direct: Any, open_table: Any, monkeypatch: Any
) -> None:
    admin = await open_table()
    await fill(conn, "failed")
    monkeypatch.setattr(admin_module, "READ_TIMEOUT", 0.1)
    other = await direct.connect("test")
    async with other.transaction():
        await other.execute("select from uploads for update")
        with pytest.raises(HowdahError, match="a locked row also delays it"):
            await admin.retry([1])
    await other.close()


async def test_times_that_python_does_not_know_are_listed_as_text(conn, open_table):
    admin = await open_table()
    await fill(conn, "failed", "failed")
    await conn.execute(
        "update uploads set queued_at = '0044-03-15 12:00+00 BC', process_after = '12026-01-01 00:00+00',"
        " started_at = 'infinity', finished_at = '2026-01-01 12:00+00' where id = 1"
    )
    other, row = await admin.list()
    assert row.queued_at == "0044-03-15T12:00:00+00:00 BC"
    assert str(row.process_after).startswith("12026-01-01T00:00:00")
    assert row.started_at == "infinity"
    assert row.finished_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert isinstance(other.queued_at, datetime)
    assert msgspec.json.encode([row, other])
