"""The roles of deploy/roles.sql: made, used and taken away again; and tests as those roles.

With HOWDAH_TEST_ROLES=1 the databases of the tests are the owner's, applications work as howdah_worker, and control
planes as howdah_fleet. Only those who look inside (``direct``, ``conn``) are superusers.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest

from howdah import Howdah
from howdah.postgres.database import Database

FILE = Path(__file__).parents[2] / "deploy" / "roles.sql"
ROLES = ("howdah_owner", "howdah_worker", "howdah_fleet", "howdah_enqueue", "howdah_read")
AS_ROLES = bool(os.environ.get("HOWDAH_TEST_ROLES"))
"""Whether tests run as roles."""
OWNER = "howdah_owner" if AS_ROLES else "current_user"
"""Whose the schema is, in SQL."""
COMMANDS = {"migrate": "howdah_owner", "token": "howdah_owner", "dev": "howdah_owner", "serve": "howdah_fleet"}
"""Whose commands are not a worker's."""

# What applications do themselves, in docs/howto/deploy.md: their tables are theirs, and they say who may use them.
APPLICATION = """
grant create on schema public to howdah_worker;
alter default privileges in schema public grant all on tables to howdah_worker, howdah_fleet;
alter default privileges in schema public grant all on sequences to howdah_worker, howdah_fleet;
alter default privileges for role howdah_worker in schema public grant all on tables to howdah_fleet;
"""


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
    """Take them away, with all they have in this database; not if the whole run needs them."""
    if AS_ROLES:
        return
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


# -------------------------------------------------------------------- tests as those roles


def settle(dsn: str) -> None:
    """Make the roles in an empty database, and let the application do its part."""
    run_roles(dsn)
    give_passwords(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(APPLICATION)


def owner(database: Database) -> Database:
    """The database as whoever makes tokens sees it."""
    return _instead(database, "howdah_owner")


def fleet(database: Database) -> Database:
    """The database as a control plane sees it."""
    return _instead(database, "howdah_fleet")


def worker(database: Database) -> Database:
    """The database as a node sees it."""
    return Database(as_role(database.dsn, "howdah_worker"), schema=database.schema) if AS_ROLES else database


def dsn_for(dsn: str, command: str = "") -> str:
    """The DSN of whoever has a command to run."""
    if not AS_ROLES or urlsplit(dsn).username != "howdah_worker":
        return dsn
    return as_role(dsn, COMMANDS.get(command, "howdah_worker"))


def serve_as_fleet(app: Howdah) -> None:
    """Let an application that is to be served work as its control plane will."""
    if app.database.dsn != (dsn := fleet(app.database).dsn):
        app.connect_to(dsn)


def _instead(database: Database, role: str) -> Database:
    """Only a worker is somebody else: who was named on purpose stays."""
    if urlsplit(database.dsn).username not in ("howdah_worker", "howdah_fleet"):
        return database
    return Database(as_role(database.dsn, role), schema=database.schema)
