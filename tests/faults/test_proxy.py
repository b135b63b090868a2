"""The line between an application and its server: it knows roles, and can be cut, go dead, dark and slow."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from howdah.postgres.database import Database
from howdah_lab.torture.context import through
from howdah_lab.torture.postgres_messages import ClientMessages
from kit.node import eventually

pytestmark = pytest.mark.anyio


def database(own_server, proxy):
    return Database(through(own_server.dsn, proxy), command_timeout=1.0)


async def test_it_knows_the_roles_of_connections(own_server, proxy):
    conns = [await database(own_server, proxy).connect(role) for role in ("claim", "ack", "claim rows")]
    assert sorted(connection.role for connection in proxy.connections) == ["ack", "claim", "claim rows"]
    for conn in conns:
        conn.terminate()
    await eventually(lambda: _none(proxy))


async def _none(proxy):
    return not proxy.connections


async def test_cut_breaks_one_role_at_once_and_no_other(own_server, proxy):
    claim = await database(own_server, proxy).connect("claim")
    ack = await database(own_server, proxy).connect("ack")
    assert proxy.cut("claim") == 1
    with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await claim.fetchval("select 1")
    assert await ack.fetchval("select 1") == 1
    ack.terminate()


async def test_a_dead_connection_answers_nothing_and_new_ones_do(own_server, proxy):
    conn = await database(own_server, proxy).connect("claim")
    assert proxy.kill("claim") == 1
    with pytest.raises(TimeoutError):
        await conn.fetchval("select 1")
    again = await database(own_server, proxy).connect("claim")
    assert await again.fetchval("select 1") == 1
    again.terminate()


async def test_in_the_dark_nobody_connects_until_it_is_healed(own_server, proxy):
    proxy.dark = True
    with pytest.raises(Exception, match="cannot reach"):
        await database(own_server, proxy).connect("claim")
    proxy.restore()
    conn = await database(own_server, proxy).connect("claim")
    assert await conn.fetchval("select 1") == 1
    conn.terminate()


async def test_slow_is_slow_in_both_directions(own_server, proxy):
    conn = await database(own_server, proxy).connect("claim")
    proxy.delay = 0.1
    began = time.monotonic()
    await conn.fetchval("select 1")
    assert time.monotonic() - began >= 0.2
    conn.terminate()
    await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["execute", "fetch", "fetchrow"])
async def test_mute_loses_the_answer_and_not_what_was_done(own_server, proxy, way):
    conn = await database(own_server, proxy).connect("claim")
    await conn.execute("drop table if exists heard; create table heard (n int)")
    proxy.mute("claim", statement="insert")
    assert await conn.fetchval("select count(*) from heard") == 0
    with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await getattr(conn, way)("insert into heard values (1) returning n")
    again = await database(own_server, proxy).connect("claim")
    assert await again.fetchval("select count(*) from heard") == 1
    proxy.mute("claim")
    with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await again.fetchval("select count(*) from heard")


async def test_it_says_when_a_connection_of_a_role_was_answered(own_server, proxy):
    claim = await database(own_server, proxy).connect("claim")
    ack = await database(own_server, proxy).connect("ack")
    waiting = asyncio.create_task(proxy.answered("claim"))
    await asyncio.sleep(0)
    await ack.fetch("select 1")
    assert not waiting.done()
    await claim.fetch("select 1")
    await asyncio.wait_for(waiting, 10)
    claim.terminate()
    ack.terminate()


async def test_it_says_when_a_statement_was_committed_or_found_something(own_server, proxy):
    await proxy.open("load")
    conns = {by: await Database(through(own_server.dsn, proxy, by)).connect("pool") for by in ("", "load")}
    assert sorted((each.by, each.role) for each in proxy.connections) == [
        ("", "pool"),
        ("load", "pool"),
    ]
    claim, append = "-- claim: some rows\nselect $1::int where $2::bool", "-- append: one\nselect $1::int"

    async def came(by, statement, act):
        """Whether an act is what the line waits for."""
        waiting = asyncio.create_task(proxy.answered("pool", by=by, statement=statement))
        await asyncio.sleep(0)
        await act(conns["load"])
        done = waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return done

    async def claims(conn, *, found=True):
        for _ in range(2):  # the second time by the name of the prepared statement
            await conn.fetch(claim, 7, found)

    async def appends(conn, *, keep=True):
        around = conn.transaction()
        await around.start()
        await conn.fetch(append, 7)
        await conn.fetch("select 1")
        await (around.commit() if keep else around.rollback())

    assert await came("load", "-- claim:", claims)
    assert not await came("load", "-- claim:", lambda conn: claims(conn, found=False)), "it found nothing"
    assert not await came("", "-- claim:", claims), "another entrance"
    assert not await came("load", "-- claim:", appends), "another statement"
    assert await came(None, "-- append:", appends)
    assert not await came(None, "-- append:", lambda conn: appends(conn, keep=False)), "it was rolled back"
    assert not await came(None, "-- append:", claims), "that transaction is over"
    for conn in conns.values():
        conn.terminate()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_statements_are_known_however_their_messages_arrive(size):
    def message(kind, content):
        return kind + (len(content) + 4).to_bytes(4, "big") + content

    startup = b"\0\x03\0\0user\0postgres\0application_name\0howdah claim\0\0"
    sent = (
        b"\0\0\0\x08\x04\xd2\x16\x2f"  # may it be encrypted?
        + message(b"", startup)
        + message(b"P", b"s1\0-- claim: rows\nselect 1\0\0\0")
        + message(b"B", b"\0s1\0\0\0\0\0\0\0")
    )
    messages = ClientMessages()
    for at in range(0, len(sent), size):
        messages.feed(sent[at : at + size])
    assert (messages.role, messages.executed("-- claim:"), messages.executed("-- ack")) == ("claim", True, False)
    messages.end_transaction()
    assert not messages.executed("-- claim:")


def test_what_is_no_client_of_postgresql_has_no_role():
    messages = ClientMessages()
    messages.feed(b"POST /claim HTTP/1.1\r\n\r\n")
    assert (messages.role, messages.executed("")) == ("", False)
