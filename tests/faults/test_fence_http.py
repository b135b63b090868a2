"""What a server forgets in a failover is not given out again to workers over HTTP: their ids, and tokens for them."""

from __future__ import annotations

from itertools import count
from typing import Any

import asyncpg
import pytest

from control_plane.conftest import Worker, serving
from howdah import Howdah
from howdah.control_plane import auth, workers_api
from howdah.node.registry import SMALLEST_NODE
from howdah.postgres import migrate
from howdah.postgres.database import Database
from kit.job_invariants import wrongs
from kit.node import EVENTUALLY_TIMEOUT
from kit.standby import pair
from table.ddl import ddl

pytestmark = pytest.mark.anyio

SETTINGS = {"fsync": "off", "max_connections": "60"}
STORES = ("jobs", "uploads")
HELD = {
    "jobs": "select count(*) from howdah.jobs where state = 'running'",
    "uploads": "select count(*) from uploads where state = 'processing'",
}


async def prepared(dsn: str) -> Howdah:
    """An application with four jobs and four rows."""
    await migrate.migrate(Database(dsn))
    conn = await asyncpg.connect(dsn)
    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, 4)")
    await conn.execute("select howdah.enqueue('noop', '{}') from generate_series(1, 4)")
    await conn.close()
    app = Howdah(dsn)

    @app.task
    async def noop() -> None: ...

    app.table("uploads", stalled_after=3600.0)
    return app


def reports(jobs: list[Any]) -> list[Any]:
    """Say of each that it is done."""
    return [{name: job[name] for name in ("id", "token", "attempt")} | {"outcome": "ok"} for job in jobs]


async def speak(worker: Worker, held: dict[str, list[Any]]) -> None:
    """Send everything that a worker sends which was frozen with work in its hands, up to its goodbye."""
    for store, jobs in held.items():
        keys = [{"id": job["id"], "token": job["token"]} for job in jobs]
        for response in (
            await worker.ack(*reports(jobs), store=store),
            await worker.tell("release", {"store": store, "held": keys}),
            await worker.tell("claim", {"max": 1, "store": store, "number": 1000, "tokens": []}),
            await worker.beat(*jobs, store=store),
        ):
            assert response.status != 400, response.body
    await worker.leave()


@pytest.mark.stories
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "from a sequence"])
async def test_a_worker_of_the_old_primary_takes_nothing_from_another_on_the_new_one(
    fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the control ids come as from a sequence that the standby forgot: the second worker has the id of the first."""
    monkeypatch.setattr(auth, "CACHE_TTL", 4 * EVENTUALLY_TIMEOUT)  # longer than the failover takes
    if not fenced:
        monkeypatch.setattr(workers_api, "new_node", lambda: SMALLEST_NODE)
    async with pair(SETTINGS) as servers:
        app = await prepared(servers.dsn)
        patient = {"offline_after": 20 * EVENTUALLY_TIMEOUT}
        async with serving(app, **patient) as elsewhere, serving(app, **patient) as control:
            await servers.cut_off()
            frozen = await elsewhere.worker(tables=["uploads"])
            old = {store: await frozen.claim(2, store=store) for store in STORES}
            assert [len(jobs) for jobs in old.values()] == [2, 2]

            await servers.fail_over()
            living = await eventual_worker(control)
            new = {store: await living.claim(3, store=store) for store in STORES}
            assert [len(jobs) for jobs in new.values()] == [3, 3]
            await speak(frozen, old)

            conn = await asyncpg.connect(servers.standby.dsn)
            held = [await conn.fetchval(HELD[store]) for store in STORES]
            assert (frozen.id != living.id) == fenced
            assert (held == [3, 3]) == fenced
            if fenced:
                for job in new["jobs"]:
                    assert (await living.complete(job)).status == 200
                response = await living.ack(*reports(new["uploads"]), store="uploads")
                assert len(response.body["accepted"]) == 3
            assert await wrongs(conn) == []
            await conn.close()
        await app.close()


async def eventual_worker(control: Any) -> Worker:
    """Register over connections that broke; the first tries may be the ones that find out."""
    for _ in range(5):
        made = await control.ask(
            "POST", "/workers/register", {"hostname": "w", "kinds": ["noop"], "tables": ["uploads"]}
        )
        if made.status == 201:
            return Worker(control, made.body["id"], made.body["credential"])
    raise AssertionError(made.body)


async def test_an_id_that_another_node_has_is_drawn_again(app: Howdah, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def noop() -> None: ...

    draws = count()
    monkeypatch.setattr(workers_api, "new_node", lambda: SMALLEST_NODE + next(draws) // 3)
    async with serving(app) as control:
        assert [(await control.worker()).id - SMALLEST_NODE for _ in range(3)] == [0, 1, 2]


BACK = """
create or replace function howdah.next_token(newest bigint default 0) returns bigint volatile
language sql set search_path = pg_catalog, pg_temp as $$ {} $$
"""


@pytest.mark.parametrize("store", STORES)
async def test_tokens_for_workers_rise_although_the_clock_went_back(app: Howdah, conn: Any, store: str) -> None:
    """The function that draws tokens is the real one, with a clock of an hour ago."""

    @app.task
    async def noop() -> None: ...

    await conn.execute(ddl())
    await conn.execute("insert into uploads (num_resets) select 0 from generate_series(1, 4)")
    await conn.execute("select howdah.enqueue('noop', '{}') from generate_series(1, 4)")
    app.table("uploads", stalled_after=3600.0)
    async with serving(app, offline_after=3600.0) as control:
        worker, other = await control.worker(tables=["uploads"]), await control.worker(tables=["uploads"])
        [first] = await worker.claim(1, store=store)
        source = await conn.fetchval("select prosrc from pg_proc where oid = 'howdah.next_token(bigint)'::regprocedure")
        behind = source.replace("clock_timestamp()", "(clock_timestamp() - interval '1 hour')")
        assert behind != source
        await conn.execute(BACK.format(behind))
        assert await conn.fetchval("select howdah.next_token()") < first["token"]  # negative control

        [second] = await worker.claim(1, store=store)
        [third] = await other.claim(1, store=store)

    assert first["token"] < second["token"] < third["token"] < 2**53
