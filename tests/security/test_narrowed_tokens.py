"""A token that is valid for some queues reaches nothing of the others: no rows of tables, no workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from control_plane.conftest import ControlPlane, serving
from howdah import Howdah
from table.ddl import ddl

pytestmark = pytest.mark.anyio


@pytest.fixture
async def plane(app: Howdah, conn: Any) -> AsyncIterator[ControlPlane]:
    """A control plane with a task and two tables."""
    for name in ("parcel", "letter"):
        await conn.execute(ddl(name, extra="address text"))
        await conn.execute(f"insert into {name} (state, address) values ('queued', 'behind the moon')")
        app.table(name)

    @app.task
    async def noop() -> None: ...

    async with serving(app) as plane:
        yield plane


async def narrow(plane: ControlPlane, *scopes: str, queues: list[str]) -> str:
    return (await plane.store.create("narrow", list(scopes), queues=queues))[0]


async def test_a_worker_of_some_queues_gets_no_rows_of_tables(plane: ControlPlane) -> None:
    token = await narrow(plane, "work", queues=["open"])
    body = {"hostname": "w", "kinds": ["noop"], "queues": ["open"], "tables": ["parcel"]}

    refused = await plane.ask("POST", "/workers/register", body, token=token)

    assert (refused.status, refused.error["field"]) == (403, "tables")


async def test_a_token_may_name_a_table_among_its_queues(plane: ControlPlane) -> None:
    token = await narrow(plane, "work", queues=["open", "parcel"])

    worker = await plane.worker(token=token, queues=["open"], tables=["parcel"])

    assert len(await worker.claim(store="parcel")) == 1
    more = {"hostname": "w", "kinds": [], "tables": ["parcel", "letter"]}
    assert (await plane.ask("POST", "/workers/register", more, token=token)).status == 403


async def test_a_worker_that_a_control_plane_of_the_release_before_let_in_gets_no_rows(
    plane: ControlPlane, conn: Any
) -> None:
    token = await narrow(plane, "work", queues=["open"])
    worker = await plane.worker(token=token, queues=["open"])
    await conn.execute("update howdah.node set tables = '{parcel}' where id = $1", worker.id)

    answer = await worker.tell("claim", {"max": 1, "store": "parcel"})

    assert answer.status == 400, answer.body


async def test_an_admin_of_some_queues_manages_workers_of_these_only(plane: ControlPlane) -> None:
    token = await narrow(plane, "admin", queues=["open"])
    own = await plane.worker(queues=["open", "open+gpu"])
    shared = await plane.worker(queues=["open", "closed"])
    tables = await plane.worker(queues=["open"], tables=["parcel"])
    general = await plane.worker()
    foreign = await plane.worker(queues=["closed"])

    for worker, status in ((foreign, 404), (shared, 403), (tables, 403), (general, 403)):
        for method, path in (("POST", f"/workers/{worker.id}/drain"), ("DELETE", f"/workers/{worker.id}")):
            assert (await plane.ask(method, path, token=token)).status == status, (path, status)
        assert await plane.status(worker.id) == "idle"
    assert (await plane.ask("POST", f"/workers/{own.id}/drain", token=token)).status == 200
    assert (await plane.ask("DELETE", f"/workers/{own.id}", token=token)).status == 204
    assert (await general.tell("drain")).status == 200, "a worker manages itself"
    assert (await plane.ask("DELETE", f"/workers/{foreign.id}")).status == 204


@pytest.mark.parametrize("scope", ["read", "admin"])
async def test_lists_show_the_workers_of_its_queues_only(plane: ControlPlane, scope: str) -> None:
    token = await narrow(plane, scope, queues=["open"])
    own = await plane.worker(queues=["open"], slots=1)
    shared = await plane.worker(queues=["open+gpu", "closed"], tables=["parcel"], slots=2)
    general = await plane.worker(slots=4)
    foreign = await plane.worker(queues=["closed"], slots=8)

    listed = {each["id"]: each for each in (await plane.get("/workers", token=token)).body["workers"]}
    one = await plane.get(f"/workers/{shared.id}", token=token)

    assert set(listed) == {own.id, shared.id, general.id}
    assert (one.body["queues"], one.body["tables"]) == (["open+gpu"], [])
    assert listed[shared.id]["queues"] == ["open+gpu"]
    assert (await plane.get(f"/workers/{foreign.id}", token=token)).status == 404
    assert sum(each["slots"] for each in (await plane.get("/stats", token=token)).body["workers"]) == 7
    assert len((await plane.get("/workers")).body["workers"]) == 4
    assert sum(each["slots"] for each in (await plane.get("/stats")).body["workers"]) == 15
