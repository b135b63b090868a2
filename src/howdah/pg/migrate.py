"""Bring a database to the schema this code needs: numbered SQL files, forward only."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg

from howdah.errors import SchemaError
from howdah.pg.database import Database
from howdah.pg.sql import identifier, render

LOCK_TIMEOUT = "1s"
"""For each lock: as long as we wait for one, whoever wants the same table waits behind us."""
TRIES = 3
PAUSE = 1.0
"""Seconds between two tries, about: those who waited behind us get their turn."""
OTHERS_TURN = 120.0
"""Seconds for somebody else who migrates at the same time."""
HELD_UP = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

COLUMNS = """
    select array_agg(a.attname::text) from pg_attribute a
    where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
"""
OURS = {"number", "name", "checksum", "applied_at"}
SPECIMEN = "\u2026"
"""A character that the database's encoding must have; texts and migrations contain it."""

HOLDER = """
    select format('process %s (%s) has held locks on its tables', a.pid, coalesce(nullif(a.application_name, ''), '?'))
        || coalesce(' for ' || extract(epoch from clock_timestamp() - a.xact_start)::int || ' s', '')
    from pg_locks l
    join pg_class c on c.oid = l.relation
    join pg_stat_activity a on a.pid = l.pid
    where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = $1)
      and l.granted
      and a.datname = current_database()
      and a.pid <> pg_backend_pid()
    order by a.xact_start, age(a.backend_xid) desc nulls last  -- when others began, not every role may see
    limit 1
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration, in order."""
    return read(files("howdah.pg") / "migrations")


def read(folder: Traversable) -> tuple[Migration, ...]:
    """The migrations in ``folder``, in order."""
    found = []
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def needed() -> int:
    """The version this code needs."""
    return migrations()[-1].number


async def version(database: Database, conn: asyncpg.Connection) -> int:
    """The version the database is at; 0 when Howdah is not there."""
    return max((row["number"] for row in await _recorded(database, conn)), default=0)


async def altered(database: Database, conn: asyncpg.Connection) -> list[int]:
    """The migrations that were run with another text than this release has under their number."""
    known = {migration.number: migration.checksum for migration in migrations()}
    rows = await _recorded(database, conn)
    return [row["number"] for row in rows if row["checksum"] != known.get(row["number"], row["checksum"])]


async def _recorded(database: Database, conn: asyncpg.Connection) -> list[asyncpg.Record]:
    table = f"{identifier(database.schema)}.migration"
    columns = await conn.fetchval(COLUMNS, table)
    if columns is None:
        return []
    rows: list[asyncpg.Record] = []
    if is_ours := set(columns) >= OURS:
        rows = await conn.fetch(f"select number, name, checksum from {table} order by number")  # noqa: S608 - quoted
        names = {migration.number: migration.name for migration in migrations()}
        is_ours = all(row["name"] == names.get(row["number"], row["name"]) for row in rows)
    if not is_ours:
        raise SchemaError(
            f"table {table} is not Howdah's; give Howdah a schema of its own (Howdah(schema=…), --schema)"
        )
    return rows


def refuse(database: Database, found: int) -> None:
    """Raise unless the schema is the one this code needs."""
    if found == needed():
        return
    if found == 0:
        raise SchemaError(f"schema {database.schema!r} does not exist; run `howdah migrate`")
    if found < needed():
        raise SchemaError(
            f"schema {database.schema!r} is at version {found}, this code needs {needed()}; run `howdah migrate`"
        )
    raise SchemaError(
        f"schema {database.schema!r} is at version {found}, this code knows only {needed()}; upgrade howdah"
    )


async def check(database: Database, conn: asyncpg.Connection | None = None) -> None:
    """Raise :class:`SchemaError` unless the schema is the one this code needs."""
    if conn is not None:
        refuse(database, await version(database, conn))
        return
    conn = await database.connect("check")
    try:
        refuse(database, await version(database, conn))
    finally:
        conn.terminate()


async def plan(database: Database) -> list[Migration]:
    """The migrations still to run."""
    conn = await database.connect("migrate")
    try:
        at = await version(database, conn)
    finally:
        conn.terminate()
    return [migration for migration in migrations() if migration.number > at]


def script(database: Database, steps: list[Migration]) -> str:
    """The steps as one SQL script, for those who run such things themselves."""
    wait = f"set local lock_timeout = '{LOCK_TIMEOUT}';"
    return "\n".join(["begin;", wait, _prologue(database), *(_step(database, step) for step in steps), "commit;", ""])


async def migrate(database: Database) -> list[Migration]:
    """Run what is still to run, in one transaction, and return it. Safe to run from many places at once.

    A lock that somebody holds is not waited for at the expense of all others: after a while :class:`SchemaError` says
    who holds it, and nothing has changed.
    """
    conn = await database.connect("migrate")
    try:
        for _ in range(TRIES - 1):
            try:
                return await _migrate(database, conn)
            except HELD_UP:
                await asyncio.sleep(random.uniform(0.5, 1.5) * PAUSE)  # noqa: S311
        try:
            return await _migrate(database, conn)
        except HELD_UP as error:
            raise await _held_up(database, conn) from error
    finally:
        conn.terminate()


async def _migrate(database: Database, conn: asyncpg.Connection) -> list[Migration]:
    async with conn.transaction(isolation="read_committed"):
        # nobody waits behind this one but those who want to migrate, too
        await conn.fetchval(
            "select pg_advisory_xact_lock(hashtextextended($1, 0))", f"{database.schema} migrate", timeout=OTHERS_TURN
        )
        await conn.execute("select set_config('lock_timeout', $1, true)", LOCK_TIMEOUT)
        at = await version(database, conn)
        if at > needed():
            refuse(database, at)
        steps = [migration for migration in migrations() if migration.number > at]
        if steps:
            await _check_encoding(conn)
            await conn.execute(_prologue(database))
        for step in steps:
            await conn.execute(_step(database, step), timeout=300)
    return steps


async def _check_encoding(conn: asyncpg.Connection) -> None:
    encoding = await conn.fetchval("select current_setting('server_encoding')")
    try:
        await conn.fetchval("select $1::text", SPECIMEN)
    except asyncpg.UntranslatableCharacterError:
        raise SchemaError(
            f"the database's encoding is {encoding}, which cannot hold what jobs may contain; create the database with"
            " encoding 'UTF8'"
        ) from None


async def _held_up(database: Database, conn: asyncpg.Connection) -> SchemaError:
    holder = await conn.fetchval(HOLDER, database.schema) or "somebody has held locks on its tables"
    return SchemaError(
        f"schema {database.schema!r} is in use, nothing was changed: {holder};"
        " let that end, and run `howdah migrate` again"
    )


def _prologue(database: Database) -> str:
    return render(
        "create schema if not exists {schema};\n"
        "create table if not exists {schema}.migration (\n"
        "    number int primary key, name text not null, checksum text not null,\n"
        "    applied_at timestamptz not null default now());",
        {"schema": database.schema},
    )


def _step(database: Database, step: Migration) -> str:
    names = {"schema": database.schema, "number": str(step.number), "name": step.name, "checksum": step.checksum}
    record = "insert into {schema}.migration (number, name, checksum) values ({'number'}, {'name'}, {'checksum'});"
    return f"{render(step.text, names)}\n{render(record, names)}\n"
