"""Migrations: run once, refuse what does not fit, survive hostile names."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from howdah import Howdah, SchemaError
from howdah.cli.output import explain
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.finding import Finding
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from kit.catalogue import catalogue

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


async def test_the_printed_script_does_the_same(direct, conn):
    other = Database(direct.dsn, schema="howdax")
    await conn.execute(migrate.script(other, list(migrate.migrations())))

    await migrate.check(other, conn)
    made = await catalogue(conn, "howdax", besides=frozenset({"migration"}))
    fresh = await catalogue(conn, "howdah", besides=frozenset({"migration"}))
    assert _renamed(made) == _renamed(fresh)
    hostile = Database(direct.dsn, schema='by "hand"')
    await conn.execute(migrate.script(hostile, list(migrate.migrations())))
    await migrate.check(hostile, conn)


def _renamed(lines: set[str]) -> set[str]:
    """The definitions with the same name in place of both schemas."""
    return {re.sub(r"howda[hx]\b", "schema", line) for line in lines}


async def test_a_failing_migration_leaves_nothing(direct, conn, monkeypatch):
    broken = migrate.Migration(2, "broken", "create table {schema}.half (x int); select 1 / 0;")
    first = migrate.migrations()[0]
    monkeypatch.setattr(migrate, "migrations", lambda: (first, broken))
    other = Database(direct.dsn, schema="broken")
    import asyncpg

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate.migrate(other)
    assert await conn.fetchval("select count(*) from pg_namespace where nspname = 'broken'") == 0


FOREIGN = [
    "create table {}.migration (id int, title text)",
    "create table {}.migration (number int, name text, checksum text, applied_at timestamptz);"
    " insert into {}.migration values (1, 'create_users', 'x', now()), (99, 'orders', 'x', now())",
]


@pytest.mark.parametrize("table", FOREIGN)
async def test_a_table_of_another_application_is_not_taken_for_ours(direct, conn, table):
    await conn.execute("create schema shared")
    await conn.execute(table.replace("{}", "shared"))
    other = Database(direct.dsn, schema="shared")

    for act in (migrate.migrate, migrate.check, migrate.plan):
        with pytest.raises(SchemaError, match="migration is not Howdah's; give Howdah a schema of its own"):
            await act(other)
    [finding] = [each for each in await Doctor(other).examine() if each.name == "schema"]
    assert finding.verdict == "bad"
    assert await conn.fetchval("select count(*) from pg_class where relnamespace = 'shared'::regnamespace") == 1


UNRELEASED = [
    "jobs",
    "log",
    "fleet",
    "operations",
    "notices",
    "fleet",
    "speed",
    "why",
    "dashboard",
    "faults",
    "speed",
    "fence",
    "fleet",
    "tables",
    "log",
    "schedules",
    "settings",
    "acts",
    "repair",
    "keys",
    "declarations",
]
"""The migrations of the development versions before 0.2, from number 1."""


@pytest.mark.parametrize("version", [1, 2, 5, 11, 21])
async def test_a_database_of_a_development_version_before_0_2_is_refused_and_not_changed(app, direct, conn, version):
    @app.task
    async def note() -> None: ...

    made = await note.enqueue()
    await conn.execute("delete from howdah.migration")
    await conn.executemany(
        "insert into howdah.migration values ($1, $2, $3)",
        [(number, name, f"text {number}") for number, name in enumerate(UNRELEASED[:version], 1)],
    )
    before = await catalogue(conn, "howdah")

    for act in (migrate.migrate, migrate.check, migrate.plan):
        with pytest.raises(SchemaError, match=r"by a development version of Howdah before 0\.2") as refusal:
            await act(direct)
        message, code = explain(refusal.value)
        assert code == 4
        assert "cannot be upgraded, nothing was changed; create a new database, or use another schema" in message
    with pytest.raises(SchemaError, match="cannot be upgraded"):
        await app.work()
    [finding] = [each for each in await Doctor(direct).examine() if each.name == "schema"]
    assert finding.verdict == "bad"
    assert "cannot be upgraded" in finding.fact

    assert await catalogue(conn, "howdah") == before
    assert await conn.fetchval("select state from howdah.jobs where id = $1", made.id) == "queued"
    await migrate.migrate(Database(direct.dsn, schema="anew"))
    await migrate.check(Database(direct.dsn, schema="anew"))


async def test_the_doctor_notices_a_migration_with_another_text(direct, conn):
    async def schema() -> Finding:
        [finding] = [each for each in await Doctor(direct).examine() if each.name == "schema"]
        return finding

    assert (await schema()).verdict == "ok"

    await conn.execute("update howdah.migration set checksum = 'other' where number = 4")

    assert (await schema()).verdict == "warn"
    assert "another text of migration 4" in (await schema()).fact
    await migrate.check(direct)  # nodes go on: a comment may be all that differs


async def test_an_encoding_without_every_character_is_refused_by_name(server, direct, conn):
    name = f"{urlsplit(direct.dsn).path[1:]}_latin1"
    await conn.execute(f"create database {name} encoding 'LATIN1' locale 'C' template template0")
    try:
        with pytest.raises(SchemaError, match=r"encoding is LATIN1, .* create the database with encoding 'UTF8'"):
            await migrate.migrate(Database(server.dsn_for(name)))
        session = await Database(server.dsn_for(name)).connect("test")
        assert await session.fetchval("select count(*) from pg_namespace where nspname = 'howdah'") == 0
        await session.close()
    finally:
        await conn.execute(f"drop database {name} with (force)")


OWNERS = ("grow", "prune_partition", "enqueue", "prune_audit")
"""Functions that deploy/roles.sql lets work with the rights of their owner."""
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def _replacing(*, remember: bool) -> migrate.Migration:
    """A migration of the release to come that replaces these functions."""
    every = "".join(each.text for each in migrate.migrations())
    shown = CONTRIBUTING.read_text(encoding="utf-8")
    blocks = re.findall(r"^do \$howdah\$.*?\$howdah\$;$", shown, re.MULTILINE | re.DOTALL)
    before, after = (block.replace("enqueue", "%s") for block in blocks)
    text = ""
    for name in OWNERS:
        [body] = re.findall(
            rf"^create (function \{{schema\}}\.{name}\(.*?\$howdah\$.*?\$howdah\$;)$", every, re.MULTILINE | re.DOTALL
        )
        replace = f"create or replace {body}\n"
        text += f"{before % name}\n{replace}{after % name}\n" if remember else replace
    return migrate.Migration(migrate.needed() + 1, "replacing", text)


@pytest.mark.parametrize(("definer", "remember"), [(True, True), (False, True), (True, False)])
async def test_functions_that_work_with_the_rights_of_their_owner_keep_them(
    direct, conn, monkeypatch, definer, remember
):
    """Until deploy/roles.sql runs again, callers that may only enqueue must not be locked out.

    The control: a function that is replaced without the two blocks that CONTRIBUTING.md shows loses its owner's rights.
    """
    older = Database(direct.dsn, schema="older")
    await migrate.migrate(older)
    for name in OWNERS if definer else ():
        await conn.execute(f"alter function older.{name} security definer")
    every = (*migrate.migrations(), _replacing(remember=remember))
    monkeypatch.setattr(migrate, "migrations", lambda: every)
    assert len(await migrate.migrate(older)) == 1

    rows = await conn.fetch("select proname from pg_proc where pronamespace = 'older'::regnamespace and prosecdef")
    found = {row["proname"] for row in rows} & set(OWNERS)
    assert found == (set(OWNERS) if definer and remember else set())


def test_no_function_is_defined_twice_in_the_first_release():
    every = "".join(each.text for each in migrate.migrations()[:5])
    names = re.findall(r"^create function \{schema\}\.(\w+)", every, re.MULTILINE)

    assert len(names) == len(set(names)) > 60
    assert "create or replace" not in every
