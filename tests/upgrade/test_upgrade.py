"""Upgrades: a database of an earlier release, with the work its nodes left in it, becomes one of this release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from howdah.diagnose.doctor import Doctor
from howdah.postgres import migrate
from howdah.postgres.database import Database
from kit import release_work as left
from kit.node import eventually, node
from kit.roles import drop_roles, run_roles
from upgrade.released import released

pytestmark = [pytest.mark.anyio, pytest.mark.superuser("it loads rows past the triggers")]

RELEASES = sorted(released())
NEXT = """
alter table {schema}.node add column zone text not null default '';
alter table {schema}.schedule add column note text;
create table {schema}.badge (node int primary key, given_at timestamptz not null default now());
create index job_by_kind on {schema}.job (kind, id);
"""
"""A migration of the release to come, so that there is always something to upgrade to."""
STATES = "select id, kind, queue, state, attempt, key, args::text, result::text, error from howdah.jobs order by id"
OWNERS = "select proname from pg_proc where pronamespace = 'howdah'::regnamespace and prosecdef order by 1"


@pytest.fixture(params=["this release", "the next release"])
def head(request, monkeypatch):
    """The migrations to upgrade to."""
    every = migrate.migrations()
    if request.param == "the next release":
        every = (*every, migrate.Migration(migrate.needed() + 1, "next", NEXT))
        monkeypatch.setattr(migrate, "migrations", lambda: every)
    return every


@pytest.fixture(params=RELEASES)
def release(request):
    """The release to upgrade from."""
    return request.param


@pytest.fixture
async def database(release, server, head, monkeypatch):
    """A database that nodes of an earlier release have worked on."""
    name = f"howdah_upgrade_{release}_{len(head)}"
    numbers = released()[release]
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        database = Database(server.dsn_for(name))
        with monkeypatch.context() as earlier:
            earlier.setattr(migrate, "migrations", lambda: tuple(each for each in head if each.number in numbers))
            await migrate.migrate(database)
        session = await database.connect("load")
        await left.load(session, Path(__file__).with_name(f"{release}.sql").read_text(encoding="utf-8"))
        await session.close()
        yield database
        conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
async def conn(database):
    conn = await database.connect("test")
    yield conn
    await conn.close()


async def marks(conn: Any) -> set[int]:
    return {row["n"] for row in await conn.fetch("select n from mark")}


async def test_its_work_goes_on_after_the_upgrade(database, conn, release, head):
    before = await conn.fetch(STATES)
    assert {row["state"] for row in before} == {"queued", "running", "done", "failed", "cancelled"}
    steps = await migrate.migrate(database)

    assert [each.number for each in steps] == [each.number for each in head if each.number not in released()[release]]
    await migrate.check(database)
    assert await conn.fetch(STATES) == before, "the upgrade itself changes no job"
    await conn.execute("update switch set broken = false")
    app = left.application(database.dsn)
    again = await app.tasks["note"].using(key="one").enqueue(1000)
    assert not again.fresh, "a key is still held by the job of the earlier release"
    async with node(app, slots=8):
        expected = {*left.DONE, *left.QUEUED, *left.RUNNING, left.KEYED}
        await eventually(lambda: _reached(conn, expected))
        await eventually(lambda: conn.fetchval("select count(*) = $1 from seen", left.EVENTS))
        assert await app.admin.resume("mail")
        [failed] = [row["id"] for row in before if row["state"] == "failed"]
        [retried] = await app.admin.retry([failed])
        assert retried.result == "queued"
        await conn.execute("update howdah.later set due_at = clock_timestamp() where kind = 'flaky'")
        expected |= {*left.PAUSED, left.FAILED, left.RETRIED}
        await eventually(lambda: _reached(conn, expected))
        [schedule] = await app.admin.schedules()
    await app.close()

    assert await marks(conn) == expected, "each effect once, and only what was due"
    assert schedule.name == "yearly"
    assert schedule.next_at == await conn.fetchval("select slot_at from howdah.schedule")
    rows = {row["id"]: row for row in await conn.fetch(STATES)}
    assert [row["state"] for row in before if rows[row["id"]]["state"] == "queued"] == ["queued"] * len(left.DELAYED)
    lost = [row["id"] for row in before if row["state"] == "running"]
    assert [(rows[id]["state"], rows[id]["attempt"]) for id in lost] == [("done", 2)] * len(left.RUNNING)
    assert await conn.fetchval("select array_agg(position order by position) from seen") == list(
        range(1, left.EVENTS + 1)
    )
    assert [each for each in await Doctor(database).examine() if each.verdict == "bad"] == []


async def _reached(conn: Any, expected: set[int]) -> bool:
    return await marks(conn) >= expected


async def test_functions_keep_the_rights_of_their_owner(database, conn, head):
    """Until deploy/roles.sql runs again, callers with few rights must not be locked out; see CONTRIBUTING.md."""
    run_roles(database.dsn)
    try:
        before = await conn.fetch(OWNERS)
        assert {"enqueue", "grow", "prune_partition", "prune_audit"} <= {row["proname"] for row in before}
        await migrate.migrate(database)

        assert await conn.fetch(OWNERS) == before
    finally:
        drop_roles(database.dsn)
