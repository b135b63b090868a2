"""Migrations: run once, refuse what does not fit, survive hostile names."""

from __future__ import annotations

import asyncio

import pytest

from howdah import Howdah, SchemaError
from howdah.pg import migrate
from howdah.pg.database import Database
from howdah.pg.sql import identifier

pytestmark = pytest.mark.anyio

HOSTILE = ['we"ird; drop--', "it's", "a.b", "Ünïcode näme", "50%", "a:b", "{schema}", "x" * 63]


async def test_migrating_twice_does_nothing_the_second_time(database, conn):
    assert await migrate.plan(database) == []
    assert await migrate.migrate(database) == []
    assert await migrate.version(database, conn) == migrate.needed()


async def test_many_may_migrate_at_once(direct):
    other = Database(direct.dsn, schema="fresh")
    ran = await asyncio.gather(*(migrate.migrate(other) for _ in range(6)))

    assert sum(bool(steps) for steps in ran) == 1
    await migrate.check(other)


@pytest.mark.parametrize("schema", HOSTILE)
async def test_any_schema_name_will_do(direct, conn, schema):
    app = Howdah(direct.dsn, schema=schema)

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    with pytest.raises(SchemaError, match="does not exist; run `howdah migrate`"):
        await app.work()
    await app.migrate()
    one = await greet.enqueue("one")
    many = await app.enqueue_many(greet.job(str(n)) for n in range(10))
    from kit.node import drain

    await drain(app)
    rows = await conn.fetch(f"select id, state from {identifier(schema)}.jobs order by id")
    assert [(row["id"], row["state"]) for row in rows] == [(each.id, "done") for each in [one, *many]]
    await app.close()


async def test_two_schemas_in_one_database_do_not_meet(direct, conn):
    apps = [Howdah(direct.dsn, schema=name) for name in ("left", "right")]
    for app in apps:
        await app.migrate()

        @app.task
        async def note() -> None: ...

        app.note = note
    await apps[0].note.enqueue()
    from kit.node import drain

    await drain(apps[1])
    assert await conn.fetchval('select count(*) from "left".ready') == 1


async def test_an_older_and_a_newer_schema_are_refused_before_anything_is_claimed(app, database, conn):
    @app.task
    async def note() -> None: ...

    made = await note.enqueue()
    await conn.execute("insert into howdah.migration values ($1, 'future', 'x')", migrate.needed() + 1)
    with pytest.raises(SchemaError, match="upgrade howdah"):
        await app.work()
    with pytest.raises(SchemaError):
        await migrate.migrate(database)
    await conn.execute("delete from howdah.migration")
    await conn.execute("insert into howdah.migration values (0, 'past', 'x')")
    with pytest.raises(SchemaError, match="run `howdah migrate`"):
        await app.work()
    assert await conn.fetchval("select state from howdah.jobs where id = $1", made.id) == "queued"
    assert await conn.fetchval("select count(*) from howdah.node") == 0


async def test_the_printed_script_does_the_same(direct, server):
    other = Database(direct.dsn, schema='by "hand"')
    conn = await direct.connect("script")
    await conn.execute(migrate.script(other, list(migrate.migrations())))
    await migrate.check(other, conn)
    await conn.close()


async def test_a_failing_migration_leaves_nothing(direct, conn, monkeypatch):
    broken = migrate.Migration(2, "broken", "create table {schema}.half (x int); select 1 / 0;")
    monkeypatch.setattr(migrate, "migrations", lambda: (*_first(), broken))
    other = Database(direct.dsn, schema="broken")
    import asyncpg

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate.migrate(other)
    assert await conn.fetchval("select count(*) from pg_namespace where nspname = 'broken'") == 0


def _first():
    from importlib.resources import files

    text = (files("howdah.pg") / "migrations" / "0001_jobs.sql").read_text()
    return (migrate.Migration(1, "jobs", text),)


@pytest.mark.parametrize("definer", [True, False])
async def test_functions_that_work_with_the_rights_of_their_owner_keep_them(direct, conn, monkeypatch, definer):
    """Until deploy/roles.sql runs again, callers that may only enqueue must not be locked out."""
    older = Database(direct.dsn, schema="older")
    every = migrate.migrations()
    with monkeypatch.context() as at:
        at.setattr(migrate, "migrations", lambda: tuple(each for each in every if each.number <= 11))
        await migrate.migrate(older)
    for name in ("grow", "prune_partition", "enqueue", "prune_audit") if definer else ():
        await conn.execute(f"alter function older.{name} security definer")
    await migrate.migrate(older)

    rows = await conn.fetch("select proname from pg_proc where pronamespace = 'older'::regnamespace and prosecdef")
    found = {row["proname"] for row in rows} & {"grow", "prune_partition", "enqueue", "prune_audit"}
    assert found == ({"grow", "prune_partition", "enqueue", "prune_audit"} if definer else set())
