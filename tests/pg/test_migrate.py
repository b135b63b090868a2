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


async def test_a_function_that_works_with_the_rights_of_its_owner_goes_on_so(direct, conn, monkeypatch):
    """deploy/roles.sql made it so; nodes prune between the migration and the next run of that file."""
    other, steps = Database(direct.dsn, schema="older"), migrate.migrations()
    [replaces] = [step.number for step in steps if step.name == "acts"]
    monkeypatch.setattr(migrate, "migrations", lambda: tuple(step for step in steps if step.number < replaces))
    await migrate.migrate(other)
    await conn.execute("alter function older.prune_partition security definer")
    monkeypatch.setattr(migrate, "migrations", lambda: steps)
    await migrate.migrate(other)

    assert await conn.fetchval("select prosecdef from pg_proc where oid = 'older.prune_partition'::regproc")
    assert not await conn.fetchval("select prosecdef from pg_proc where oid = 'howdah.prune_partition'::regproc")
