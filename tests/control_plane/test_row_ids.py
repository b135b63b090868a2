"""Rows are worked on over HTTP whatever their keys are."""

from __future__ import annotations

import asyncio
import uuid
from typing import Annotated, Any

import pytest
from msgspec import Meta

from control_plane.conftest import serving
from howdah import Howdah
from howdah.remote import messages
from kit.node import eventually
from kit.remote_node import registered, remote
from table.ddl import ddl

pytestmark = pytest.mark.anyio

KEYS: dict[str, list[Any]] = {
    "bigint primary key": [0, -1, 1, -(2**63), 2**63 - 1],
    "text primary key": ["", "a", " ", "0", "/", "é\n\t\"'", "x" * 301, "y" * 100_000],
    "uuid primary key": [uuid.UUID(int=0), uuid.UUID(int=7)],
}


@pytest.mark.parametrize("kind", KEYS)
async def test_rows_of_every_key_run_once(app: Howdah, conn: Any, kind: str) -> None:
    keys, workers = KEYS[kind], Howdah()
    ran: list[Any] = []

    @workers.table("uploads", max_attempts=2).handler
    async def upload(record: Any) -> None:
        ran.append(record["id"])

    await conn.execute(ddl(id=kind))
    await conn.execute(f"insert into uploads (id) select unnest($1::{kind.split()[0]}[])", keys)
    app.table("uploads", max_attempts=2)
    async with serving(app) as plane, remote(plane, workers):

        async def over() -> bool:
            return await conn.fetchval("select count(*) from uploads where state = 'completed'") == len(keys)

        await eventually(over)
    assert sorted(ran, key=str) == sorted([str(key) if isinstance(key, uuid.UUID) else key for key in keys], key=str)
    assert await conn.fetchval("select sum(num_resets + num_failures) from uploads") == 0


class NarrowJob(messages.ClaimedJob):
    """A claimed row whose key is a positive number or a short text."""

    id: Annotated[int, Meta(ge=1)] | Annotated[str, Meta(min_length=1, max_length=300)]


class NarrowResponse(messages.ClaimResponse):
    jobs: list[NarrowJob]


@pytest.mark.parametrize("kind", ["bigint primary key", "text primary key"])
async def test_control_a_key_that_the_worker_does_not_read_stops_its_neighbours(
    app: Howdah, conn: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "ClaimResponse", NarrowResponse)
    workers = Howdah()

    @workers.table("uploads", max_attempts=2).handler
    async def upload(record: Any) -> None: ...

    await conn.execute(ddl(id=kind))
    await conn.execute(f"insert into uploads (id) select unnest($1::{kind.split()[0]}[])", KEYS[kind])
    app.table("uploads", max_attempts=2)
    async with serving(app) as plane, remote(plane, workers) as node:
        await registered(node)
        await asyncio.sleep(1.5)  # what is shown is that nothing happens
        assert await conn.fetchval("select count(*) from uploads where state = 'completed'") == 0


@pytest.mark.parametrize("kind", KEYS)
async def test_every_request_takes_them(app: Howdah, conn: Any, kind: str) -> None:
    keys = KEYS[kind]
    await conn.execute(ddl(id=kind))
    await conn.execute(f"insert into uploads (id) select unnest($1::{kind.split()[0]}[])", keys)
    app.table("uploads")
    async with serving(app) as plane:
        worker = await plane.worker(tables=["uploads"])
        rows = await worker.claim(20, store="uploads")
        assert len(rows) == len(keys)

        held = [{"id": row["id"], "token": row["token"]} for row in rows]
        assert (await worker.beat(*rows, store="uploads")).body["fates"]["uploads"]["kept"] == held
        reports = [{**each, "attempt": 1, "outcome": "retry"} for each in held[1:]]
        assert len((await worker.ack(*reports, store="uploads")).body["accepted"]) == len(keys) - 1
        assert (await worker.tell("release", {"held": held[:1], "store": "uploads"})).body == {"jobs": 1}
    states = await conn.fetch("select state, count(*) from uploads group by 1 order by 1")
    assert [tuple(row) for row in states] == [("errored", len(keys) - 1), ("queued", 1)]


async def test_a_key_that_cannot_be_one_of_the_table_is_named_and_its_neighbour_kept(app: Howdah, conn: Any) -> None:
    await conn.execute(ddl())
    await conn.execute("insert into uploads default values")
    app.table("uploads")
    async with serving(app) as plane:
        worker = await plane.worker(tables=["uploads"])
        row = await worker.one(store="uploads")
        response = await worker.beat(row, {"id": "x", "token": row["token"]}, store="uploads")

        assert response.status == 200
        fate = response.body["fates"]["uploads"]
        assert fate["kept"] == [{"id": row["id"], "token": row["token"]}]
        assert "lost" not in fate
        assert fate["problem"].startswith("row 'x' could not be renewed: ")
