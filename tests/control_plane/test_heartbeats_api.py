"""A heartbeat is answered store by store: what is wrong with one table costs nobody the jobs or rows of another."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from control_plane.conftest import serving
from howdah import Howdah
from howdah.control_plane.workers_api import WorkersApi
from howdah.remote.messages import RenewalResult
from kit.node import eventually
from kit.remote_node import registered, remote
from table.ddl import ddl

pytestmark = pytest.mark.anyio

LEASE = 6.0


async def tables(conn: Any, *names: str) -> None:
    for name in names:
        await conn.execute(ddl(name))
        await conn.execute(f"insert into {name} (num_resets) values (0)")


async def renew_or_fail(api: WorkersApi, node: Any, name: str, held: Any) -> RenewalResult:
    """Renew the rows of one table; what goes wrong fails the heartbeat."""
    table = api._tables[name]
    async with asyncio.timeout(table.timeout):
        await table.heartbeat(node.id, [(each.token, each.id) for each in held])
    return RenewalResult(kept=held)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_locked_table_fails_no_other_store(
    app: Howdah, conn: Any, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unguarded, the worker gets no answer for any of its stores."""
    if not guarded:
        monkeypatch.setattr(WorkersApi, "_renew_rows", renew_or_fail)

    @app.task
    async def noop() -> None: ...

    await tables(conn, "uploads", "films")
    app.table("uploads", stalled_after=3600.0)
    app.table("films", stalled_after=3600.0)
    async with serving(app, offline_after=60.0) as plane:
        await plane.enqueue()
        worker = await plane.worker(tables=["uploads", "films"])
        held = {name: [await worker.one(store=name)] for name in ("jobs", "uploads", "films")}
        named = {name: [{"id": job["id"], "token": job["token"]} for job in jobs] for name, jobs in held.items()}
        until = await conn.fetchval("select expires_at from howdah.lease")
        began = time.monotonic()
        async with conn.transaction():
            await conn.execute("lock table uploads in share mode")
            response = await worker.tell("heartbeat", {"held": named})

        if not guarded:
            assert response.status >= 500
            return
        assert response.status == 200
        assert time.monotonic() - began < 30, "it does not wait for the lock"
        fates = response.body["fates"]
        assert {name: fates[name].get("kept") for name in held} == {**named, "uploads": None}
        assert "lost" not in fates["uploads"]
        assert "locked" in fates["uploads"]["problem"]
        assert await conn.fetchval("select expires_at from howdah.lease") > until
        again = (await worker.tell("heartbeat", {"held": named})).body["fates"]
        assert {name: fate.get("kept") for name, fate in again.items()} == named
        assert "problem" not in again["uploads"]


async def test_a_table_that_is_not_served_here_or_not_registered_for_is_named(app: Howdah, conn: Any) -> None:
    @app.task
    async def noop() -> None: ...

    await tables(conn, "uploads", "films")
    app.table("uploads", stalled_after=3600.0)
    async with serving(app) as plane:
        await plane.enqueue()
        worker = await plane.worker()
        job = await worker.one()
        row = {"id": 1, "token": 1}
        response = await worker.tell(
            "heartbeat", {"held": {"films": [row], "jobs": [row | job_key(job)], "uploads": [row]}}
        )

    assert response.status == 200
    assert response.body["fates"] == {
        "jobs": {"kept": [job_key(job)]},
        "films": {"problem": "this control plane does not serve a table 'films'"},
        "uploads": {"problem": f"worker {worker.id} did not register for a table 'uploads'"},
    }


async def test_a_row_that_cannot_be_renewed_costs_its_neighbours_nothing(app: Howdah, conn: Any) -> None:
    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, 10)")
    await conn.execute("""
        create function no() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
        create trigger no before update on uploads for each row
            when (new.id = 7 and old.state = 'processing') execute function no()""")
    app.table("uploads", stalled_after=3600.0)
    async with serving(app, offline_after=60.0) as plane:
        worker = await plane.worker(tables=["uploads"])
        rows = await worker.claim(10, store="uploads")
        await conn.execute("create table claimed as select id, last_heartbeat_at from uploads")
        gone = next(row for row in rows if row["id"] == 3)
        await conn.execute("delete from uploads where id = 3")
        fate = (await worker.beat(*rows, store="uploads")).body["fates"]["uploads"]

        assert sorted(each["id"] for each in fate["kept"]) == [1, 2, 4, 5, 6, 8, 9, 10]
        assert fate["lost"] == [job_key(gone)]
        assert fate["problem"] == "row 7 could not be renewed: not this one"
    fresh = await conn.fetch("""
        select id from uploads join claimed using (id)
        where uploads.last_heartbeat_at > claimed.last_heartbeat_at order by id""")
    assert [row["id"] for row in fresh] == [1, 2, 4, 5, 6, 8, 9, 10]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise exception 'mine' using errcode = 'ZZ001';", "mine"),
        ("perform nosuch from uploads;", 'column "nosuch" does not exist'),
        ("return null;", "a BEFORE trigger of the table dropped the update by returning NULL"),
    ],
)
async def test_a_row_is_refused_in_any_way_and_its_neighbours_are_kept(
    app: Howdah, conn: Any, body: str, problem: str
) -> None:
    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, 3)")
    await conn.execute(f"""
        create function no() returns trigger language plpgsql as $$ begin {body} return new; end $$;
        create trigger no before update on uploads for each row
            when (new.id = 2 and old.state = 'processing') execute function no()""")
    app.table("uploads", stalled_after=3600.0)
    async with serving(app, offline_after=60.0) as plane:
        worker = await plane.worker(tables=["uploads"])
        rows = await worker.claim(3, store="uploads")
        fate = (await worker.beat(*rows, store="uploads")).body["fates"]["uploads"]

        assert sorted(each["id"] for each in fate["kept"]) == [1, 3]
        assert "lost" not in fate
        assert fate["problem"] == f"row 2 could not be renewed: {problem}"


def job_key(job: Any) -> dict[str, Any]:
    return {"id": job["id"], "token": job["token"]}


async def test_a_lease_somebody_has_locked_is_kept_and_holds_up_nothing(plane, worker, conn):
    for _ in range(2):
        await plane.enqueue()
    locked, free = await worker.one(), await worker.one()
    before = await conn.fetchval("select expires_at from howdah.lease where token = $1", free["token"])
    async with conn.transaction():
        await conn.execute("select from howdah.lease where token = $1 for update", locked["token"])
        response = await worker.beat(locked, free)

        assert response.body["fates"]["jobs"] == {"kept": [job_key(locked), job_key(free)]}
        assert await conn.fetchval("select locked from howdah.node where id = $1", worker.id) == [locked["token"]]
    assert await conn.fetchval("select expires_at from howdah.lease where token = $1", free["token"]) > before
    await worker.beat(locked, free)
    assert await conn.fetchval("select locked from howdah.node where id = $1", worker.id) is None


async def test_a_locked_table_costs_a_worker_no_job(app: Howdah, conn: Any) -> None:
    """The lock lasts longer than a lease."""
    begun: list[str] = []
    go = asyncio.Event()
    workers = Howdah()

    @workers.task
    async def long() -> None:
        begun.append("job")
        await go.wait()

    @workers.table("uploads", stalled_after=3600.0).handler
    async def upload(record: Any) -> None:
        begun.append("row")
        await go.wait()

    await tables(conn, "uploads")
    app.table("uploads", stalled_after=3600.0)
    async with serving(app, heartbeat=0.5, offline_after=LEASE) as plane:
        await plane.enqueue("long")
        async with remote(plane, workers) as remote_node:
            await registered(remote_node)

            async def both() -> bool:
                return sorted(begun) == ["job", "row"]

            await eventually(both)
            async with conn.transaction():
                await conn.execute("lock table uploads in share mode")
                await asyncio.sleep(1.5 * LEASE)  # what is shown is that nothing happens
                assert [attempt.job.kind for attempt in remote_node.running] == ["long"], "the row's own lease is over"
            go.set()

            async def over() -> bool:
                return bool(await conn.fetchval("select state = 'done' from howdah.jobs"))

            await eventually(over)
        assert begun.count("job") == 1
        assert tuple(await conn.fetchrow("select attempt, resets from howdah.jobs")) == (1, 0)


async def test_a_control_plane_without_the_table_keeps_the_jobs(app: Howdah, conn: Any) -> None:
    """As after a restart with another version of the application."""
    go, workers = asyncio.Event(), Howdah()
    begun: list[str] = []

    @workers.task
    async def long() -> None:
        begun.append("job")
        await go.wait()

    @workers.table("uploads", stalled_after=3600.0).handler
    async def upload(record: Any) -> None:
        begun.append("row")
        await asyncio.sleep(3600)

    await tables(conn, "uploads")
    app.table("uploads", stalled_after=3600.0)
    async with serving(app, heartbeat=0.5, offline_after=LEASE) as plane:
        await plane.enqueue("long")
        async with remote(plane, workers, grace=0.0) as remote_node:
            await registered(remote_node)

            async def both() -> bool:
                return sorted(begun) == ["job", "row"]

            await eventually(both)
            without = Howdah(app.database.dsn)
            async with serving(without, heartbeat=0.5, offline_after=LEASE) as other:
                for client in (remote_node.client, remote_node.heartbeat_thread.connection):
                    assert client is not None
                    client._http.base_url = other.url
                await asyncio.sleep(1.5 * LEASE)
                go.set()

                async def over() -> bool:
                    return bool(await conn.fetchval("select state = 'done' from howdah.jobs"))

                await eventually(over)
    assert begun.count("job") == 1
    assert tuple(await conn.fetchrow("select attempt, resets from howdah.jobs")) == (1, 0)
