"""The line between an application and its server: it knows roles, and can be cut, go dead, dark and slow."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from howdah.pg.database import Database
from howdah.torture.site import through
from kit.node import eventually

pytestmark = pytest.mark.anyio


def database(place, line):
    return Database(through(place.dsn, line), command_timeout=1.0)


async def test_it_knows_the_roles_of_connections(place, line):
    conns = [await database(place, line).connect(role) for role in ("claim", "ack", "claim rows")]
    assert sorted(wire.role for wire in line.wires) == ["ack", "claim", "claim rows"]
    for conn in conns:
        conn.terminate()
    await eventually(lambda: _none(line))


async def _none(line):
    return not line.wires


async def test_cut_breaks_one_role_at_once_and_no_other(place, line):
    claim = await database(place, line).connect("claim")
    ack = await database(place, line).connect("ack")
    assert line.cut("claim") == 1
    with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await claim.fetchval("select 1")
    assert await ack.fetchval("select 1") == 1
    ack.terminate()


async def test_a_dead_connection_answers_nothing_and_new_ones_do(place, line):
    conn = await database(place, line).connect("claim")
    assert line.kill("claim") == 1
    with pytest.raises(TimeoutError):
        await conn.fetchval("select 1")
    again = await database(place, line).connect("claim")
    assert await again.fetchval("select 1") == 1
    again.terminate()


async def test_in_the_dark_nobody_connects_until_it_is_healed(place, line):
    line.dark = True
    with pytest.raises(Exception, match="cannot reach"):
        await database(place, line).connect("claim")
    line.heal()
    conn = await database(place, line).connect("claim")
    assert await conn.fetchval("select 1") == 1
    conn.terminate()


async def test_slow_is_slow_in_both_directions(place, line):
    conn = await database(place, line).connect("claim")
    line.delay = 0.1
    began = time.monotonic()
    await conn.fetchval("select 1")
    assert time.monotonic() - began >= 0.2
    conn.terminate()
    await asyncio.sleep(0)


async def test_mute_loses_the_answer_and_not_what_was_done(place, line):
    conn = await database(place, line).connect("claim")
    await conn.execute("drop table if exists heard; create table heard (n int)")
    line.mute("claim")
    with pytest.raises((OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await conn.execute("insert into heard values (1)")
    again = await database(place, line).connect("claim")
    assert await again.fetchval("select count(*) from heard") == 1
    again.terminate()


async def test_it_says_when_a_connection_of_a_role_was_answered(place, line):
    claim = await database(place, line).connect("claim")
    ack = await database(place, line).connect("ack")
    waiting = asyncio.create_task(line.answered("claim"))
    await asyncio.sleep(0)
    await ack.fetch("select 1")
    assert not waiting.done()
    await claim.fetch("select 1")
    await asyncio.wait_for(waiting, 10)
    claim.terminate()
    ack.terminate()
