"""What a server says that cannot take a write: it is full, or it is no longer the primary."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg
import pytest

from howdah import DatabaseFull, DatabaseUnreachable
from howdah.postgres.database import Database, Session

pytestmark = pytest.mark.anyio

NO_ROOM = """
create function no_room() returns trigger language plpgsql as $$
begin
    raise exception using errcode = 'disk_full', message = 'could not extend file: No space left on device';
end $$;
create trigger no_room before insert on howdah.job for each row execute function no_room()
"""
ROOM = "drop trigger no_room on howdah.job"


def task_of(app):
    @app.task
    async def greet(n: int) -> None: ...

    return greet


async def read_only(conn, database: Database, value: str) -> None:
    """What new sessions of the database are."""
    name = urlsplit(database.dsn).path[1:]
    await conn.execute(f'alter database "{name}" set default_transaction_read_only = {value}')


async def test_an_enqueue_without_room_is_refused_and_can_be_repeated(app, conn):
    greet = task_of(app)
    await conn.execute(NO_ROOM)

    with pytest.raises(DatabaseFull, match="has no room left, nothing happened: could not extend file"):
        await greet.enqueue(1)
    with pytest.raises(DatabaseFull):
        await app.enqueue_many([greet.job(2), greet.job(3)])
    assert await conn.fetchval("select count(*) from howdah.job") == 0

    await conn.execute(ROOM)
    await greet.enqueue(1)
    assert await conn.fetchval("select count(*) from howdah.job") == 1
    await app.close()


async def test_without_room_for_another_connection_nothing_is_enqueued(app, conn, database):
    task_of(app)
    await conn.execute("drop role if exists howdah_crowd")
    await conn.execute("create role howdah_crowd login password 'crowd' connection limit 0")
    try:
        parts = urlsplit(database.dsn)
        crowd = parts._replace(netloc=f"howdah_crowd:crowd@{parts.netloc.rpartition('@')[2]}").geturl()

        with pytest.raises(DatabaseFull, match="too many connections for role"):
            await Database(crowd).connect("test")
        with pytest.raises(DatabaseUnreachable):
            await Database(crowd).pool(2)
    finally:
        await conn.execute("drop role howdah_crowd")


async def test_a_pool_lets_go_of_a_server_that_takes_no_more_writes(database, conn):
    await conn.execute("create table wanted (n int)")
    await read_only(conn, database, "on")
    pool = await database.pool(2)
    try:
        async with pool.acquire() as one, pool.acquire() as other:
            assert {await each.fetchval("show transaction_read_only") for each in (one, other)} == {"on"}
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await pool.execute("insert into wanted values (1)")
        await read_only(conn, database, "off")

        async with pool.acquire() as one, pool.acquire() as other:
            await one.execute("insert into wanted values (2)")
            await other.execute("insert into wanted values (3)")
    finally:
        pool.terminate()
    assert await conn.fetchval("select count(*) from wanted") == 2


async def test_a_session_lets_go_of_a_server_that_takes_no_more_writes(database, conn):
    await conn.execute("create table wanted (n int)")
    await read_only(conn, database, "on")
    session = Session(database, "test")
    try:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await session.fetch("insert into wanted values (1)")
        await read_only(conn, database, "off")

        await session.fetch("insert into wanted values (2)")
    finally:
        await session.close()
