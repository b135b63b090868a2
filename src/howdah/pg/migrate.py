"""Bring a database to the schema this code needs: numbered SQL files, forward only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg

from howdah.errors import SchemaError
from howdah.pg.database import Database
from howdah.pg.sql import identifier, render

LOCK_TIMEOUT = "5s"


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
    found = []
    for file in (files("howdah.pg") / "migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.number))


def needed() -> int:
    """The version this code needs."""
    return migrations()[-1].number


async def version(database: Database, conn: asyncpg.Connection) -> int:
    """The version the database is at; 0 when Howdah is not there."""
    table = f"{identifier(database.schema)}.migration"
    if await conn.fetchval("select to_regclass($1)", table) is None:
        return 0
    return int(await conn.fetchval(f"select coalesce(max(number), 0) from {table}"))  # noqa: S608 - quoted above


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
    return "\n".join(["begin;", _prologue(database), *(_step(database, step) for step in steps), "commit;", ""])


async def migrate(database: Database) -> list[Migration]:
    """Run what is still to run, in one transaction, and return it. Safe to run from many places at once."""
    conn = await database.connect("migrate")
    try:
        async with conn.transaction():
            await conn.execute("select set_config('lock_timeout', $1, true)", LOCK_TIMEOUT)
            await conn.fetchval(
                "select pg_advisory_xact_lock(hashtextextended($1, 0))",
                f"{database.schema} migrate",
                timeout=120,
            )
            at = await version(database, conn)
            if at > needed():
                refuse(database, at)
            steps = [migration for migration in migrations() if migration.number > at]
            if steps:
                await conn.execute(_prologue(database))
            for step in steps:
                await conn.execute(_step(database, step), timeout=300)
        return steps
    finally:
        conn.terminate()


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
