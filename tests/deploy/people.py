"""The roles of deploy/roles.sql: made, used and taken away again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest

FILE = Path(__file__).parents[2] / "deploy" / "roles.sql"
ROLES = ("howdah_owner", "howdah_worker", "howdah_fleet", "howdah_enqueue", "howdah_read")
PARTS = (
    "select relname from pg_class c join pg_inherits i on i.inhrelid = c.oid where inhparent = 'howdah.job'::regclass"
)
FAR = 30_000_000
"""An id for which there is no partition, and before which all are closed."""


def run_roles(dsn: str) -> None:
    """Run the file, as psql would."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(FILE.read_text(encoding="utf-8"))


def as_role(dsn: str, role: str) -> str:
    """The same database, by another role."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{role}:{role}@{parts.netloc.rpartition('@')[2]}"))


def give_passwords(dsn: str) -> None:
    """Let every role log in with its own name."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for role in ROLES:
            conn.execute(f"alter role {role} password '{role}'")


def drop_roles(dsn: str) -> None:
    """Take them away, with all they have in this database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for role in ROLES:
            conn.execute(f"drop owned by {role} cascade")
        for role in ROLES:
            conn.execute(f"drop role {role}")


async def refuses(dsn: str, *statements: str) -> None:
    """Every one of these is denied."""
    conn = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute(statement)
    finally:
        await conn.close()


async def partitions(conn: Any) -> set[int]:
    """Where the partitions begin, besides the default one."""
    return {int(row[0].split("_")[1]) for row in await conn.fetch(PARTS) if row[0] != "job_default"}


async def grew(conn: Any) -> bool:
    return any(first > FAR for first in await partitions(conn))
