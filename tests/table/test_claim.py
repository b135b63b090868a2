"""Which rows are claimed, in which order, and what a handler sees of them."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

import msgspec
import pytest

from howdah import Columns, Howdah, Where, current_job
from kit.node import drain, eventually, node
from table.ddl import ddl

pytestmark = pytest.mark.anyio


@pytest.fixture
def seen(app):
    return []


async def test_every_row_is_worked_on_once_in_order(app, uploads, rows, seen):
    table = app.table("uploads", order_by=["priority desc", "id"])

    @table.handler
    async def execute(record: dict) -> None:
        seen.append((record["priority"], record["id"]))

    await rows.add(20)
    await uploads.execute("update uploads set priority = id % 3")
    await drain(app, slots=1)

    assert seen == sorted(seen, key=lambda item: (-item[0], item[1]))
    assert len(seen) == 20
    row = await rows.one()
    assert (row["state"], row["num_failures"], row["num_resets"]) == ("completed", 0, 0)
    assert row["queued_at"] <= row["started_at"] <= row["finished_at"]
    assert ":" in row["worker_hostname"]


async def test_only_rows_that_are_due_and_wanted_are_claimed(app, uploads, rows, seen):
    table = app.table("uploads u", where=Where("u.kind = $1 and n < $2", "zip", 100))

    @table.handler
    async def execute(record: dict) -> None:
        seen.append(record["id"])

    await rows.add(8)
    await uploads.execute("update uploads set kind = 'tar' where id = 2")
    await uploads.execute("update uploads set process_after = now() + interval '1 hour' where id = 3")
    await uploads.execute("update uploads set process_after = now() - interval '1 hour' where id = 4")
    await uploads.execute("update uploads set cancel = true where id = 5")
    await uploads.execute("update uploads set n = 100 where id = 6")
    await uploads.execute("update uploads set state = 'failed' where id = 7")
    await uploads.execute("update uploads set state = 'errored', num_failures = 1 where id = 8")
    await drain(app)

    assert sorted(seen) == [1, 4, 8]


@dataclass
class Upload:
    id: int
    state: str
    queued_at: datetime
    repository_name: str
    repository_id: int
    blob: bytes
    attempt: int


@pytest.mark.superuser("makes a schema, and grants nothing in it")
async def test_records_are_read_through_a_view_with_expressions(app, conn, seen):
    await conn.execute("create schema app; create table app.repo (id int primary key, name text)")
    await conn.execute(ddl("app.uploads", Columns(state="status"), extra="repository_id int not null, blob bytea"))
    await conn.execute(
        "create view app.uploads_with_repository as"
        " select u.*, r.name from app.uploads u join app.repo r on r.id = repository_id"
    )
    await conn.execute("insert into app.repo values (7, 'howdah')")
    await conn.execute("insert into app.uploads (repository_id, blob) values (7, $1)", b"x" * 200)
    table = app.table(
        "app.uploads j",
        view="app.uploads_with_repository j",
        record=Upload,
        expressions={"repository_name": "upper(j.name)", "attempt": "j.num_failures + 1"},
        columns=Columns(state="status"),
        order_by=["j.repository_id", "j.id"],
    )

    @table.handler
    async def execute(upload: Upload) -> None:
        seen.append(upload)
        assert current_job().kind == current_job().queue == "app.uploads"

    await drain(app)

    [upload] = seen
    assert (upload.id, upload.state, upload.repository_name, upload.attempt) == (1, "processing", "HOWDAH", 1)
    assert upload.blob == b"x" * 200
    assert upload.queued_at.tzinfo is not None
    assert await conn.fetchval("select status from app.uploads") == "completed"


class Small(msgspec.Struct, rename="camel"):
    id: int
    size_mb: int | None


class Typed(TypedDict):
    id: int
    kind: str


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Small, Small(1, 5)),
        (Typed, {"id": 1, "kind": "zip"}),
        (lambda row: (row["id"], row["size_mb"]), (1, 5)),
    ],
)
async def test_a_record_is_whatever_one_likes(app, uploads, rows, seen, record, expected):
    table = app.table("uploads", record=record)

    @table.handler
    def execute(upload) -> None:
        seen.append(upload)

    await rows.add(size_mb=5)
    await drain(app)
    assert seen == [expected]


async def test_a_record_that_does_not_fit_fails_its_row_only(app, uploads, rows, seen):
    table = app.table("uploads", record=Typed)

    @table.handler
    async def execute(upload) -> None:
        seen.append(upload["id"])

    await rows.add(3)
    await rows.set(2, kind=None)
    await drain(app)

    assert sorted(seen) == [1, 3]
    row = await rows.one(2)
    assert row["state"] == "failed"
    assert "does not fit" in row["failure_message"]


async def test_an_expression_that_fails_for_one_row_fails_that_row_only(app, uploads, rows, seen):
    table = app.table("uploads", record=Small, expressions={"size_mb": "100 / uploads.size_mb"}, max_attempts=1)

    @table.handler
    async def execute(upload) -> None:
        seen.append((upload.id, upload.size_mb))

    await rows.add(3, size_mb=5)
    await rows.set(2, size_mb=0)
    await drain(app)

    assert sorted(seen) == [(1, 20), (3, 20)]
    row = await rows.one(2)
    assert row["state"] == "failed"
    assert "division by zero" in row["failure_message"]


async def test_a_row_that_is_not_in_the_view_fails_and_says_so(app, uploads, rows):
    await uploads.execute("create view latest as select * from uploads where n > 1")
    table = app.table("uploads", view="latest", max_attempts=1)

    @table.handler
    async def execute(upload) -> None: ...

    await rows.add(2)
    await drain(app)
    assert await rows.states() == ["failed", "completed"]
    assert "is not in public.latest" in (await rows.one())["failure_message"]


@pytest.mark.parametrize(
    ("type", "values"), [("uuid", [uuid.UUID(int=5)]), ("text", ['it\'s; "x"']), ("smallint", [7])]
)
async def test_a_key_is_a_number_or_uuid_or_text(app, conn, rows, seen, type, values):
    await conn.execute(ddl(id=f"{type} primary key"))
    await conn.executemany("insert into uploads (id) values ($1)", [(value,) for value in values])
    table = app.table("uploads")

    @table.handler
    async def execute(record: dict) -> None:
        seen.append((current_job().id, record["id"]))
        await asyncio.sleep(0.4)  # a heartbeat or two

    async with node(app, heartbeat=0.1):
        await eventually(lambda: _all(conn, "completed"))
    sent = [str(value) if type == "uuid" else value for value in values]
    assert seen == [(value, value) for value in sent]


async def _all(conn, state):
    return await conn.fetchval("select bool_and(state::text = $1) from uploads", state)


async def test_states_may_be_an_enum(app, conn, rows):
    await conn.execute(
        "create type st as enum ('queued', 'processing', 'errored', 'failed', 'completed', 'canceled', 'odd')"
    )
    await conn.execute(ddl().replace("text not null default 'queued'", "st not null default 'queued'"))
    await conn.execute("insert into uploads default values")
    table = app.table("uploads", max_attempts=1)

    @table.handler
    async def execute(record) -> None:
        raise ValueError

    await drain(app)
    assert await _all(conn, "failed")


async def test_two_hundred_claimers_over_fifty_locked_rows_get_the_free_ones(app, uploads, rows, direct, store_for):
    table = app.table("uploads")
    await rows.add(250)
    other = await direct.connect("other")
    async with other.transaction():
        await other.execute("select from uploads where id <= 50 for update")
        stores = [await store_for(table) for _ in range(40)]
        claims = await asyncio.gather(*(stores[i % 40].claim(1, {}) for i in range(200)))
    await other.close()

    assert sorted(job.id for jobs in claims for job in jobs) == list(range(51, 251))


async def test_many_nodes_work_on_each_row_once(app, uploads, rows, seen):
    table = app.table("uploads")

    @table.handler
    async def execute(record: dict) -> None:
        seen.append(record["id"])
        await asyncio.sleep(0.005)

    await rows.add(100)
    await asyncio.gather(*(drain(app, slots=3) for _ in range(6)))
    assert sorted(seen) == list(range(1, 101))


async def test_a_claim_is_capped_and_then_the_worker_of_the_table_ends(app, uploads, rows):
    table = app.table("uploads", total_jobs=3)

    @table.handler
    async def execute(record: dict) -> None: ...

    await rows.add(10)
    async with node(app) as running_node:
        await eventually(lambda: _ended(running_node))
        assert running_node.ready, "the jobs go on"
    assert (await rows.states()).count("completed") == 3


async def _ended(running_node):
    return len(running_node.workers) == 2 and running_node.workers[1].draining


async def test_a_table_claims_no_more_after_its_time(app, uploads, rows):
    table = app.table("uploads", max_active_time=0.5, poll=0.1)

    @table.handler
    async def execute(record: dict) -> None: ...

    async with node(app) as running_node:
        await rows.add(1)
        await eventually(lambda: _all(uploads, "completed"))
        await eventually(lambda: _ended(running_node))
        await rows.add(1)
        await asyncio.sleep(0.3)
    assert await rows.states() == ["completed", "queued"]


async def test_a_notification_wakes_the_worker_of_a_table(direct, uploads, rows, seen):
    from howdah.table.statement import channel

    app = Howdah(direct.dsn)
    table = app.table("uploads", notify=True, poll=90.0)

    @table.handler
    async def execute(record: dict) -> None:
        seen.append(record["id"])

    name = channel('"public"."uploads"')
    await uploads.execute(
        f"create function ring() returns trigger language plpgsql as $$ begin notify {name}; return null; end $$;"
        " create trigger ring after insert on uploads for each statement execute function ring()"
    )
    async with node(app, notify=True) as running_node:
        await eventually(lambda: _hears(running_node))
        await asyncio.sleep(0.2)
        await rows.add(1)
        await eventually(lambda: _all(uploads, "completed"))
    assert seen == [1]


async def _hears(running_node):
    return len(running_node.open) == 2 and not running_node.open[1]._listener.deaf
