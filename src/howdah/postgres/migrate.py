"""Bring a database to the schema this code needs: numbered SQL files, forward only."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

import asyncpg

from howdah.errors import SchemaError
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier, render

LOCK_TIMEOUT = "1s"
"""``lock_timeout``: while a migration waits for a lock, all later users of the table wait behind it."""
TRIES = 3
PAUSE = 1.0
"""Approximate seconds between two attempts, in which the waiting users proceed."""
OTHERS_TURN = 120.0
"""Seconds to wait for a concurrent migration."""
HELD_UP = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

COLUMNS = """
    select array_agg(a.attname::text) from pg_attribute a
    where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped
"""
OURS = {"number", "name", "checksum", "applied_at"}
WORKS_FROM = re.compile(r"^-- works from: (\d+)$", re.MULTILINE)
UNRELEASED = (2, "log")
"""A migration that only the development versions before 0.2, the first release, had under this number."""
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

    @property
    def works_from(self) -> int:
        """The oldest version whose code still works after this migration; its own if its text names none."""
        found = WORKS_FROM.search(self.text)
        return int(found[1]) if found else self.number


class SchemaState(NamedTuple):
    """The version of a schema, and the oldest version whose code works on it."""

    version: int
    works_from: int

    @property
    def works(self) -> bool:
        """True if this code works on the schema."""
        return self.version >= needed() >= self.works_from

    @property
    def newer(self) -> bool:
        """True if a later release has migrated the schema."""
        return self.version > needed()


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration, in order."""
    return read(files("howdah.postgres") / "migrations")


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
    return (await state(database, conn)).version


async def state(database: Database, conn: asyncpg.Connection | None = None) -> SchemaState:
    """Return the version the database is at, 0 when Howdah is not there, and from which version on code works on it."""
    if conn is None:
        conn = await database.connect("check")
        try:
            return await state(database, conn)
        finally:
            conn.terminate()
    rows = await _recorded(database, conn)
    # not recorded: by a release that cannot tell
    works_from = [row["number"] if row["works_from"] is None else row["works_from"] for row in rows]
    return SchemaState(max((row["number"] for row in rows), default=0), max(works_from, default=0))


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
        rows = await conn.fetch(f"select * from {table} order by number")  # noqa: S608 - quoted
        _refuse_unreleased(database, rows)
        names = {migration.number: migration.name for migration in migrations()}
        is_ours = all(row["name"] == names.get(row["number"], row["name"]) for row in rows)
    if not is_ours:
        raise SchemaError(
            f"table {table} is not Howdah's; give Howdah a schema of its own (Howdah(schema=…), --schema)"
        )
    if "works_from" not in columns:
        raise _unreleased(database)
    return rows


def _refuse_unreleased(database: Database, rows: list[asyncpg.Record]) -> None:
    """Raise if a development version before 0.2 made the schema, with other migrations under the same numbers."""
    first = migrations()[0]
    alone = [(row["number"], row["name"]) for row in rows] == [(first.number, first.name)]
    if (alone and rows[0]["checksum"] != first.checksum) or any(
        (row["number"], row["name"]) == UNRELEASED for row in rows
    ):
        raise _unreleased(database)


def _unreleased(database: Database) -> SchemaError:
    return SchemaError(
        f"schema {database.schema!r} was made by a development version of Howdah before 0.2 and cannot be upgraded,"
        " nothing was changed; create a new database, or use another schema (Howdah(schema=…), --schema)"
    )


def refuse(database: Database, found: SchemaState) -> None:
    """Raise unless this code works on the schema."""
    if found.works:
        return
    if found.version == 0:
        raise SchemaError(f"schema {database.schema!r} does not exist; run `howdah migrate`")
    if not found.newer:
        raise SchemaError(
            f"schema {database.schema!r} is at version {found.version}, this code needs {needed()};"
            " run `howdah migrate`"
        )
    raise SchemaError(
        f"schema {database.schema!r} is at version {found.version}, this code knows only {needed()}, and the schema"
        f" works with code from version {found.works_from} on; upgrade howdah"
    )


async def check(database: Database, conn: asyncpg.Connection | None = None) -> None:
    """Raise :class:`SchemaError` unless this code works on the schema."""
    refuse(database, await state(database, conn))


async def plan(database: Database) -> list[Migration]:
    """The migrations still to run."""
    conn = await database.connect("migrate")
    try:
        at = await version(database, conn)
    finally:
        conn.terminate()
    return [migration for migration in migrations() if migration.number > at]


def script(database: Database, steps: list[Migration]) -> str:
    """Return the steps as one SQL script, to be run by hand."""
    wait = f"set local lock_timeout = '{LOCK_TIMEOUT}';"
    return "\n".join(["begin;", wait, _prologue(database), *(_step(database, step) for step in steps), "commit;", ""])


async def migrate(database: Database) -> list[Migration]:
    """Run what is still to run, in one transaction, and return it. Safe to run from many places at once.

    A lock held by another transaction must not stall all users: after a while :class:`SchemaError` says
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
        # only other migrations wait behind this lock
        await conn.fetchval(
            "select pg_advisory_xact_lock(hashtextextended($1, 0))", f"{database.schema} migrate", timeout=OTHERS_TURN
        )
        await conn.execute("select set_config('lock_timeout', $1, true)", LOCK_TIMEOUT)
        at = await state(database, conn)
        if at.newer:
            refuse(database, at)
        steps = [migration for migration in migrations() if migration.number > at.version]
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
    holder = await conn.fetchval(HOLDER, database.schema) or "another transaction holds locks on its tables"
    return SchemaError(
        f"schema {database.schema!r} is in use, nothing was changed: {holder};"
        " let that end, and run `howdah migrate` again"
    )


def _prologue(database: Database) -> str:
    return render(
        "create schema if not exists {schema};\n"
        "create table if not exists {schema}.migration (\n"
        "    number int primary key, name text not null, checksum text not null,\n"
        "    applied_at timestamptz not null default now(), works_from int);",
        {"schema": database.schema},
    )


def _step(database: Database, step: Migration) -> str:
    names = {"schema": database.schema, "number": str(step.number), "name": step.name, "checksum": step.checksum}
    names["works_from"] = str(step.works_from)
    record = (
        "insert into {schema}.migration (number, name, checksum, works_from)"
        " values ({'number'}, {'name'}, {'checksum'}, {'works_from'});"
    )
    return f"{render(step.text, names)}\n{render(record, names)}\n"
