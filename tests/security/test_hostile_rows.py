"""Rows somebody else wrote name no code, and names of every kind are only names (S1, S2, S16)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah import Event, Howdah, NewEvent, Transaction
from howdah.diagnose.doctor import Doctor
from howdah.postgres.sql import identifier
from kit.control_plane import run_remote_node, serving
from kit.node import eventually, node
from security.user_interfaces import follow, pages, sign_in

pytestmark = pytest.mark.anyio

TRAP = "a_trap_for_imports"
KINDS = (f"{TRAP}:fire", f"{TRAP}.fire", TRAP, f"howdah:webhook:{TRAP}", f"howdah:{TRAP}", "os:system", "builtins:eval")
ARGUMENTS = {
    "py/object": f"{TRAP}.Fire",
    "__reduce__": [f"{TRAP}.fire", []],
    "__class__": f"{TRAP}.Fire",
    "$type": TRAP,
}
NAME = "we\"ird; drop table job --'{schema}$1%s\\"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that anybody can import; once somebody did, this file is there."""
    mark = tmp_path / "sprung"
    (tmp_path / f"{TRAP}.py").write_text(f"open({str(mark)!r}, 'w')\ndef fire(**_): ...\nclass Fire: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[1]}")
    yield mark
    sys.modules.pop(TRAP, None)


def test_the_trap_works(trap: Path) -> None:
    __import__(TRAP)

    assert trap.exists()


async def test_a_row_names_no_code(app: Howdah, conn: Any, trap: Path) -> None:
    """Kinds are looked up among the tasks of the application, schedules among its schedules; the rest is left alone."""
    ran = []

    @app.task
    def known(what: Any) -> None:
        ran.append(what)

    app.schedule("beat", known.job("beat"), cron="0 0 1 1 *")
    args = json.dumps(ARGUMENTS).encode()
    for kind in KINDS:
        if kind.startswith("howdah:"):
            await conn.execute("select howdah.enqueue_own($1, $2::json, 5, 60)", kind, args)
        else:
            await conn.execute("select howdah.enqueue($1, $2::json, meta => $2::json)", kind, args)
    await conn.execute("select howdah.enqueue('known', json_build_object('what', $1::json))", args)
    await conn.execute(
        "insert into howdah.schedule (name, kind, cron, zone, slot_at)"
        " select name, $1, '0 0 1 1 *', 'UTC', date_trunc('year', now(), 'UTC')"
        " from unnest('{beat,other}'::text[]) name",
        KINDS[0],
    )
    await conn.execute("select howdah.declare_scope($1, 1, null, null, 0)", KINDS[0])
    await app.log.append("Order-1", NewEvent(type=KINDS[0], data=ARGUMENTS))
    async with node(app):
        await eventually(lambda: conn.fetchval("select count(*) >= 2 from howdah.done"))
    await app.close()

    assert sorted(ran, key=str) == ["beat", ARGUMENTS], "what looks like code is text"
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'queued'") == len(KINDS)
    assert TRAP not in sys.modules
    assert not trap.exists()


async def test_a_request_names_no_code(app: Howdah, conn: Any, trap: Path) -> None:
    """Nor does what a control plane hands out to a worker."""
    remote, ran = Howdah("postgresql://nowhere/none"), []
    for each in (app, remote):

        @each.task
        def known(what: Any) -> None:
            ran.append(what)

    async with serving(app) as plane, plane.client() as ask, run_remote_node(remote, plane):
        for kind in KINDS:
            assert (await ask.post("/jobs", json={"kind": kind, "args": ARGUMENTS})).status_code in (201, 400, 403, 422)
        assert (await ask.post("/jobs", json={"kind": "known", "args": {"what": ARGUMENTS}})).status_code == 201
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.done"))
    await app.close()

    assert ran == [ARGUMENTS]
    assert TRAP not in sys.modules
    assert not trap.exists()


@pytest.mark.superuser("the roles are those of the schema howdah")
async def test_hostile_names_live_a_whole_life(database: Any, conn: Any) -> None:
    """As schema, queue, kind, key, schedule, consumer, stream, type of an event: worked, shown, acted on, pruned."""
    app, schema = Howdah(database.dsn, schema=NAME), identifier(NAME)
    await app.migrate()
    seen: list[str] = []
    tables = "select array_agg(relname order by 1) from pg_class where relkind in ('r', 'p') and not relispartition"
    before = await conn.fetchval(tables)

    @app.task(name=NAME, queue=NAME, max_attempts=1)
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError(NAME)

    app.schedule(NAME, work.job(False), cron="0 0 1 1 *")

    @app.consumer(NAME, start="beginning")
    async def read(event: Event, tx: Transaction) -> None:
        seen.append(event.type)

    async with node(app, rebalance=0.2) as working:
        done, failed = await work.using(key=NAME).enqueue(False), await work.enqueue(True)
        waits = await work.using(delay=3600, meta={NAME: NAME}).enqueue(False)
        await app.log.append(f"Order-{NAME}", NewEvent(type=NAME, data={NAME: NAME}))
        await eventually(lambda: conn.fetchval(f"select count(*) = 2 from {schema}.done"))
        await eventually(lambda: conn.fetchval(f"select position > 0 from {schema}.checkpoint"))
        await eventually(lambda: conn.fetchval(f"select count(*) > 0 from {schema}.schedule"))
        await app.admin.pause(NAME, by=NAME)
        await app.admin.move([waits.id], NAME[::-1])
        assert "due" in [gate.name for gate in await app.why.job(waits.id) if not gate.open]
        assert [group.kind for group in (await app.admin.failures()).groups] == [NAME]
        async with serving(app) as plane, plane.client() as ask:
            await sign_in(ask, plane.token)
            seen_pages = await follow(ask, pages(consumer=NAME, node=working.node))
        examined = await Doctor(app.database).examine()
    await app.close()

    assert seen == [NAME]
    rows = await conn.fetch(f"select id, state from {schema}.jobs order by id")
    assert [tuple(row) for row in rows] == [(done.id, "done"), (failed.id, "failed"), (waits.id, "queued")]
    assert {each: response.status_code for each, response in seen_pages.items() if response.status_code != 200} == {}
    assert "we&#34;ird; drop table job --&#39;" in seen_pages["/dashboard/jobs"].text
    assert [each.name for each in examined if each.verdict == "bad"] == []
    assert await conn.fetchval(tables) == before
