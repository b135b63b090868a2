"""A row of a table that was claimed over HTTP is its worker's: nobody else can speak of it, whatever they know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from control_plane.conftest import Answer, ControlPlane, Worker, serving
from howdah import Howdah
from kit.node import eventually
from table.ddl import ddl

pytestmark = pytest.mark.anyio

ROW = "select state, num_resets, num_failures, last_heartbeat_at, process_after, execution_logs from uploads"


@asynccontextmanager
async def uploads(app: Howdah, conn: Any, rows: int = 1, **options: Any) -> AsyncIterator[ControlPlane]:
    """A control plane for a table with rows in it; nobody takes them back within the test, unless it says so."""
    table = {"stalled_after": options.pop("stalled_after", 3600.0)}
    await conn.execute(ddl(id=options.pop("id", None)))
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, $1::int)", rows)
    app.table("uploads", **table)
    async with serving(app, **{"offline_after": 60.0, **options}) as plane:
        yield plane


async def worker_of(plane: ControlPlane, name: str = "w") -> Worker:
    return await plane.worker(hostname=name, kinds=[], tables=["uploads"])


async def claimed(worker: Worker) -> Any:
    return await worker.one(store="uploads")


def report(row: Any, outcome: str) -> dict[str, Any]:
    return {"id": row["id"], "token": row["token"], "attempt": 1, "outcome": outcome, "delay": 60}


async def beat(worker: Worker, row: Any) -> Answer:
    return await worker.beat(row, store="uploads")


async def release(worker: Worker, row: Any) -> Answer:
    return await worker.tell("release", {"held": [{"id": row["id"], "token": row["token"]}], "store": "uploads"})


async def say(worker: Worker, row: Any) -> Answer:
    return await worker.tell(f"log/{row['id']}", {"token": row["token"], "lines": ["it is mine"]})


def acking(outcome: str) -> Callable[[Worker, Any], Any]:
    async def ack(worker: Worker, row: Any) -> Answer:
        return await worker.ack(report(row, outcome), store="uploads", finished=[row["token"]])

    return ack


ACTIONS: dict[str, tuple[Callable[[Worker, Any], Any], Callable[[Any], Any], Any]] = {
    "heartbeat": (beat, lambda body: body["fates"]["uploads"].get("kept", []), []),
    "release": (release, lambda body: body["jobs"], 0),
    "log": (say, lambda body: body["error"]["code"], "STALE"),
    **{
        f"ack {outcome}": (acking(outcome), lambda body: body["accepted"], [])
        for outcome in ("ok", "retry", "failed", "poison", "cancelled", "snoozed", "released")
    },
}
"""What somebody may say of a row, where the answer has it, and what that is when it is refused."""


@pytest.mark.parametrize("action", ACTIONS)
async def test_another_worker_with_the_right_token_changes_nothing(app: Howdah, conn: Any, action: str) -> None:
    do, read_answer, refused = ACTIONS[action]
    async with uploads(app, conn) as plane:
        owner, other = await worker_of(plane), await worker_of(plane)
        row = await claimed(owner)
        before = await conn.fetchrow(ROW)

        assert read_answer((await do(other, row)).body) == refused
        assert await conn.fetchrow(ROW) == before
        assert (await owner.ack(report(row, "ok"), store="uploads")).body["accepted"] != []
        ended = await conn.fetchrow(ROW)
        assert ended["state"] == "completed"
        assert read_answer((await do(other, row)).body) == refused, "nor when it is over"
        assert await conn.fetchrow(ROW) == ended


async def test_what_is_another_workers_does_not_spoil_what_is_ones_own(app: Howdah, conn: Any) -> None:
    async with uploads(app, conn, rows=2) as plane:
        one, other = await worker_of(plane), await worker_of(plane)
        mine, theirs = await claimed(one), await claimed(other)

        beaten = (await one.beat(mine, theirs, store="uploads")).body["fates"]["uploads"]
        assert [each["id"] for each in beaten["kept"]] == [mine["id"]]
        assert [each["id"] for each in beaten["lost"]] == [theirs["id"]]
        body = (await one.ack(report(mine, "ok"), report(theirs, "ok"), store="uploads")).body["accepted"]
        assert [each["id"] for each in body] == [mine["id"]]
    states = await conn.fetch("select id, state from uploads order by id")
    assert dict(states) == {mine["id"]: "completed", theirs["id"]: "processing"}


async def test_every_control_plane_knows_whose_a_row_is(app: Howdah, conn: Any) -> None:
    async with uploads(app, conn, rows=2) as plane:
        owner, other = await worker_of(plane), await worker_of(plane)
        early, late = await claimed(owner), await claimed(owner)
        async with serving(app, offline_after=60.0) as replica:
            elsewhere = Worker(replica, owner.id, owner.credential)
            stranger = Worker(replica, other.id, other.credential)

            assert (await stranger.ack(report(early, "ok"), store="uploads")).body["accepted"] == []
            assert (await beat(elsewhere, early)).body["fates"]["uploads"]["kept"] != []
            assert (await elsewhere.ack(report(early, "ok"), store="uploads")).body["accepted"] != []
    async with serving(app, offline_after=60.0) as plane:  # all of them were started anew
        after = Worker(plane, owner.id, owner.credential)
        assert (await after.ack(report(early, "ok"), store="uploads")).body["accepted"] != [], "said again"
        assert (await after.ack(report(late, "ok"), store="uploads")).body["accepted"] != []
    assert await conn.fetchval("select count(*) from uploads where state = 'completed'") == 2


@pytest.mark.parametrize(
    "id", ["int primary key generated always as identity", "uuid primary key default gen_random_uuid()"]
)
async def test_rows_of_a_worker_that_leaves_go_back_at_once(app: Howdah, conn: Any, id: str) -> None:
    async with uploads(app, conn, id=id) as plane:
        owner = await worker_of(plane)
        row = await claimed(owner)
        assert (await owner.leave()).status == 204

        assert tuple(await conn.fetchrow("select state, num_resets from uploads")) == ("queued", 0)
        again = await claimed(await worker_of(plane))
        assert (again["id"], again["attempt"]) == (row["id"], 1)


async def test_rows_of_a_silent_worker_are_free_as_its_jobs_are(app: Howdah, conn: Any) -> None:
    """Though the table itself would wait for much longer; those of a worker that beats stay its own."""
    async with uploads(app, conn, rows=2, offline_after=5.0) as plane:
        silent, alive = await worker_of(plane), await worker_of(plane)
        lost, kept = await claimed(silent), await claimed(alive)

        async def freed() -> bool:
            await beat(alive, kept)
            return bool(await conn.fetchval("select state = 'queued' from uploads where id = $1", lost["id"]))

        await eventually(freed, 30)
        rows = dict(await conn.fetch("select id, num_resets from uploads"))
        assert rows == {lost["id"]: 1, kept["id"]: 0}
        assert (await beat(silent, lost)).body["fates"]["uploads"].get("kept", []) == []
        assert (await silent.ack(report(lost, "ok"), store="uploads")).body["accepted"] == []
        assert (await alive.ack(report(kept, "ok"), store="uploads")).body["accepted"] != []
        assert await conn.fetchval("select state from uploads where id = $1", lost["id"]) == "queued"


async def test_a_row_that_is_reported_twice_in_one_request_is_accepted_once(app: Howdah, conn: Any) -> None:
    async with uploads(app, conn, rows=2) as plane:
        worker = await worker_of(plane)
        one, other = await claimed(worker), await claimed(worker)
        twice = [report(one, "retry"), report(other, "ok"), report(one, "retry")]

        body = (await worker.ack(*twice, store="uploads")).body["accepted"]
        assert sorted(each["id"] for each in body) == sorted([one["id"], other["id"]])
        assert await conn.fetchval("select num_failures from uploads where id = $1", one["id"]) == 1


async def test_leases_that_are_over_are_forgotten(app: Howdah, conn: Any) -> None:
    await conn.execute(
        "insert into howdah.row_lease values (1, 1, 'no longer served', '[1]', now() - interval '1 day')"
    )
    async with uploads(app, conn, offline_after=1.0) as plane:
        worker = await worker_of(plane)
        row = await claimed(worker)
        assert (await worker.ack(report(row, "ok"), store="uploads")).body["accepted"] != []

        await eventually(lambda: conn.fetchval("select count(*) = 0 from howdah.row_lease"), 30)
    assert await conn.fetchval("select state from uploads") == "completed"


async def test_a_row_says_who_works_on_it(app: Howdah, conn: Any) -> None:
    async with uploads(app, conn) as plane:
        await claimed(await worker_of(plane, "far-away"))

    assert await conn.fetchval("select worker_hostname from uploads") == "far-away"
