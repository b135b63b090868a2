"""Jobs of Howdah itself (`howdah:…`) cannot be enqueued from outside, and run only from their reserved queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from click.testing import CliRunner

from control_plane.conftest import serving
from howdah import Howdah
from howdah.cli import main
from howdah.errors import ArgumentError, ConfigError
from howdah.job import NewJob
from kit.node import drain

pytestmark = pytest.mark.anyio
Dsn = Callable[[str], str]

FORBIDDEN = (
    ("howdah:prune", "open"),
    ("howdah:prune", "howdah"),
    ("howdah:webhook:ops", "howdah"),
    ("howdah:", "default"),
)
PLANT = """
with id as (select nextval('howdah.job_id') as id),
job as (
    insert into howdah.job (id, queue, kind, args, max_attempts) select id, $1, 'howdah:prune', $2::json, 5 from id
),
lane as (insert into howdah.lane values ($1, 0))
insert into howdah.ready (lo, hi, priority, attempt, queue, kind) select id, id + 1, 0, 0, $1, 'howdah:prune' from id
returning lo
"""
"""Enqueues past all checks, as a role that may write the tables could."""
EVERYTHING = '{"done": 0, "failed": 0}'
OLD_NODE = "insert into howdah.node (id, name, version) values (7, 'old:1', '0.2.0')"


async def failed_job(app: Howdah) -> int:
    """Return a job that has failed, which everybody who looks for the reason needs."""

    @app.task(queue="closed", max_attempts=1)
    async def breaks() -> None:
        raise ValueError("no")

    made = await breaks.enqueue()
    await drain(app)
    return made.id


async def state(conn: Any, id: int) -> str | None:
    return await conn.fetchval("select state from howdah.jobs where id = $1", id)


@pytest.mark.parametrize("role", ["owner", "worker", "fleet", "enqueue", "superuser"])
async def test_no_role_enqueues_them_by_the_function(roles: Dsn, direct: Any, conn: Any, role: str) -> None:
    caller = await asyncpg.connect(direct.dsn if role == "superuser" else roles(f"howdah_{role}"))
    try:
        for kind, queue in FORBIDDEN:
            with pytest.raises(asyncpg.InvalidParameterValueError, match="reserved for Howdah"):
                await caller.execute("select howdah.enqueue($1, queue => $2)", kind, queue)
        await caller.execute("select howdah.enqueue('mine', queue => 'howdah')")
    finally:
        await caller.close()

    assert await conn.fetchval("select array_agg(kind) from howdah.job") == ["mine"]


async def test_nodes_of_the_release_before_go_on_relaying_while_they_are_there(roles: Dsn, conn: Any) -> None:
    """Their statement enqueues deliveries with the function."""
    worker, client = await asyncpg.connect(roles("howdah_worker")), await asyncpg.connect(roles("howdah_enqueue"))
    delivery = "select howdah.enqueue('howdah:webhook:ops', queue => 'howdah')"
    try:
        await conn.execute(OLD_NODE)

        await worker.execute(delivery)
        for who, statement in (
            (client, delivery),
            (worker, "select howdah.enqueue('howdah:webhook:ops', queue => 'default')"),
            (worker, "select howdah.enqueue('howdah:prune', queue => 'howdah')"),
        ):
            with pytest.raises(asyncpg.InvalidParameterValueError, match="reserved for Howdah"):
                await who.execute(statement)

        await conn.execute("update howdah.node set state = 'offline', stopped_at = now()")
        with pytest.raises(asyncpg.InvalidParameterValueError, match="reserved for Howdah"):
            await worker.execute(delivery)
    finally:
        await worker.close()
        await client.close()


async def test_nobody_enqueues_them_over_http(app: Howdah, conn: Any) -> None:
    app.webhook("https://hooks.example.com/7", name="ops", on=["job.failed"])
    async with serving(app) as plane:
        narrow, _ = await plane.store.create("narrow", ["enqueue"], queues=["open"])
        for token in (narrow, plane.tokens["enqueue"], plane.tokens["admin"]):
            for kind, queue in FORBIDDEN:
                body = {"kind": kind, "queue": queue, "args": {"done": 0, "failed": 0}}
                refused = await plane.ask("POST", "/jobs", body, token=token)

                assert (refused.status, refused.error["field"]) == (403, "kind"), refused.body

    assert await conn.fetchval("select count(*) from howdah.job") == 0


async def test_no_worker_over_http_registers_for_them(app: Howdah) -> None:
    async with serving(app) as plane:
        body = {"hostname": "w", "kinds": ["mine", "howdah:webhook:ops"]}
        refused = await plane.ask("POST", "/workers/register", body, token=plane.tokens["work"])

    assert (refused.status, refused.error["field"]) == (400, "kinds")


@pytest.mark.parametrize("with_app", [True, False])
def test_the_command_line_does_not_enqueue_them(direct: Any, tmp_path: Any, monkeypatch: Any, with_app: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_kinds.py").write_text("from howdah import Howdah\napp = Howdah()\n")
    env = {"HOWDAH_DSN": direct.dsn, "HOWDAH_APP": "shop_kinds:app" if with_app else ""}
    for kind, queue in FORBIDDEN:
        done = CliRunner().invoke(main, ["enqueue", kind, EVERYTHING, "--queue", queue], env=env, prog_name="howdah")

        assert done.exit_code == 2
        assert "Howdah's own and cannot be enqueued" in done.output


@pytest.mark.parametrize(("queue", "kept"), [("open", True), ("howdah", False)])
async def test_a_job_in_another_queue_deletes_nothing(app: Howdah, conn: Any, queue: str, kept: bool) -> None:
    """The second case is the control: from the reserved queue it would have deleted the failed job."""
    failed = await failed_job(app)
    planted = await conn.fetchval(PLANT, queue, EVERYTHING.encode())

    await drain(app)

    assert (await state(conn, failed) == "failed") is kept
    if kept:
        row = await conn.fetchrow("select state, attempt, error from howdah.jobs where id = $1", planted)
        assert (row["state"], row["attempt"]) == ("failed", 1)
        assert "run only in queue 'howdah'" in row["error"]


async def test_the_application_itself_enqueues_its_prune(app: Howdah, conn: Any) -> None:
    failed = await failed_job(app)

    made = await app.prune.using(key="once").enqueue(done=0, failed=0)
    same = await app.prune.using(key="once", delay=60).enqueue()
    async with conn.transaction():
        later = await app.prune.using(delay=60, conn=conn).enqueue()
    await drain(app)

    assert (same.id, same.fresh) == (made.id, False)
    assert await state(conn, failed) is None
    assert await conn.fetchval("select queue from howdah.job where id = $1", later.id) == "howdah"
    with pytest.raises(ArgumentError, match="runs only in queue 'howdah'"):
        await app.prune.using(queue="open").enqueue()
    with pytest.raises(ArgumentError, match="runs only in queue 'howdah'"):
        await app.enqueue_many([NewJob(kind="howdah:prune", queue="open")])


def test_no_task_has_such_a_name(app: Howdah) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        app.task(name="howdah:prune")(lambda: None)
