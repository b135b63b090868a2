"""`synchronous_commit = off` of a role, a database or a server does not reach what Howdah acknowledges."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from howdah import Howdah
from howdah.job import NewJob
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from howdah_lab.torture.servers.single import Single
from kit.node import EVENTUALLY_TIMEOUT
from kit.strict_pooler import StrictPooler

pytestmark = pytest.mark.anyio

OWNER = pytest.mark.superuser("settings of a database are its owner's")
UNFLUSHED = {"wal_writer_delay": "10s", "autovacuum": "off"}
"""What commits asynchronously is written so late that a crash forgets it."""
LOST = "forget jobs and outcomes"


async def commit(conn: Any, dsn: str, value: str) -> None:
    """Set how new sessions of the database commit."""
    await conn.execute(f"alter database {identifier(urlsplit(dsn).path[1:])} set synchronous_commit = '{value}'")


async def seen(database: Database) -> set[str]:
    """How connections of Howdah commit: one of its own, and one of a pool that was used before."""
    one = await database.connect("ack")
    pool = await database.pool(1)
    try:
        return {await each.fetchval("show synchronous_commit") for each in (one, pool, pool)}
    finally:
        await one.close()
        pool.terminate()


@OWNER
@pytest.mark.parametrize(("value", "used"), [("off", "on"), ("remote_apply", "remote_apply"), ("local", "local")])
async def test_howdahs_connections_commit_synchronously(direct, conn, caplog, value, used):
    await commit(conn, direct.dsn, value)

    assert await seen(Database(direct.dsn)) == {used}

    assert LOST not in caplog.text


@OWNER
async def test_off_in_the_dsn_is_respected_and_logged_once(direct, caplog):
    database = Database(f"{direct.dsn}{'&' if '?' in direct.dsn else '?'}synchronous_commit=off")

    with caplog.at_level(logging.WARNING, "howdah"):
        assert await seen(database) == {"off"}
        await database.check(writes=True)

    assert caplog.text.count(LOST) == 1


@OWNER
async def test_off_behind_a_pooler_is_logged(direct, conn, tmp_path, caplog):
    await commit(conn, direct.dsn, "off")

    async with StrictPooler(direct.dsn, tmp_path) as pooler:
        app = Howdah(pooler.dsn)
        with caplog.at_level(logging.WARNING, "howdah"):
            await app.enqueue(NewJob(kind="any"))
        await app.close()

    assert caplog.text.count(LOST) == 1


@pytest.mark.stories
@pytest.mark.parametrize("own", [True, False], ids=["howdah's connection", "a connection of another client"])
async def test_a_crash_forgets_no_acknowledged_job(own):
    """The negative control enqueues by SQL on a connection that Howdah did not open: that job is forgotten."""
    async with Single(UNFLUSHED) as server:
        await migrate.migrate(Database(server.dsn))
        conn = await asyncpg.connect(server.dsn)
        await commit(conn, server.dsn, "off")
        await conn.execute("checkpoint")
        await conn.close()
        if own:
            app = Howdah(server.dsn)
            await app.enqueue(NewJob(kind="any"))
        else:
            other = await asyncpg.connect(server.dsn)
            await other.execute("select howdah.enqueue('any')")
        await server.crash()
        await server.start()
        await server.writable(4 * EVENTUALLY_TIMEOUT)
        conn = await asyncpg.connect(server.dsn)
        kept = await conn.fetchval("select count(*) from howdah.job")
        await conn.close()
        if own:
            await app.close()

    assert kept == own
