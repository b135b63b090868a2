"""A transaction around a handler: its last statement travels with the commit, and both succeed or neither."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from howdah import TransactionLost
from howdah.postgres.transaction import transact

pytestmark = pytest.mark.anyio

TABLES = """
create table noted (n int);
create table parent (n int primary key);
create table child (n int references parent deferrable initially deferred);
"""


@pytest.fixture
async def pool(database, conn):
    """One connection, so that each transaction finds what the one before it left: none may leave anything open."""
    left_open: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: left_open.append(context["message"]))
    await conn.execute(TABLES)
    pool = await database.pool(1)
    yield pool
    await pool.close()
    assert left_open == []


def note(n):
    async def body(tx):
        await tx.execute("insert into noted values ($1)", n)

    return body


def last(statement):
    async def finish(_conn, _result):
        return statement

    return finish


async def noted(conn):
    return [row["n"] for row in await conn.fetch("select n from noted order by n")]


async def test_it_commits_with_its_last_statement_again_and_again(pool, conn):
    for n in (1, 3, 5):
        await transact(pool, 10, note(n), last(f"insert into noted values ({n + 1})"))
        assert await noted(conn) == [*range(1, n + 2)]
    assert await conn.fetchval("select count(*) from pg_stat_activity where state like 'idle in%'") == 0


async def test_what_the_last_statement_raises_undoes_all(pool, conn):
    with pytest.raises(asyncpg.DivisionByZeroError):
        await transact(pool, 10, note(1), last("select 1/0"))
    assert await noted(conn) == []
    await transact(pool, 10, note(2), last("select 1"))
    assert await noted(conn) == [2]


async def test_what_the_commit_raises_undoes_all(pool, conn):
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await transact(pool, 10, note(1), last("insert into child values (7)"))
    assert await noted(conn) == []
    await transact(pool, 10, note(2), last("select 1"))
    assert await noted(conn) == [2]


async def test_an_error_that_was_swallowed_does_not_commit(pool, conn):
    async def body(tx):
        await tx.execute("insert into noted values (1)")
        with pytest.raises(asyncpg.DivisionByZeroError):
            await tx.execute("select 1/0")

    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await transact(pool, 10, body, last("select 1"))
    assert await noted(conn) == []


async def test_a_savepoint_of_the_handlers_is_one_and_the_next_transaction_is_none(pool, conn):
    async def body(tx):
        async with tx.use() as own:
            async with own.transaction():
                await own.execute("insert into noted values (1)")
            inner = own.transaction()
            await inner.start()
            await own.execute("insert into noted values (2)")
            await inner.rollback()

    await transact(pool, 10, body, last("insert into noted values (3)"))
    async with pool.acquire() as own, own.transaction():
        await own.execute("insert into noted values (4)")
    assert await noted(conn) == [1, 3, 4]


async def test_a_connection_that_breaks_before_the_end_is_a_lost_transaction(pool, conn):
    async def body(tx):
        await tx.execute("insert into noted values (1)")
        await conn.execute("select pg_terminate_backend($1, 10000)", tx.connection.get_server_pid())
        await tx.execute("select 1")

    with pytest.raises(TransactionLost):
        await transact(pool, 10, body, last("select 1"))
    assert await noted(conn) == []


async def test_one_that_breaks_while_it_commits_says_so_and_claims_nothing(pool, conn):
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.exceptions.AdminShutdownError)):
        await transact(pool, 10, note(1), last("select pg_terminate_backend(pg_backend_pid())"))
    assert await noted(conn) == []
