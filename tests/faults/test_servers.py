"""The servers that are tortured: each is hurt in every way it offers, and keeps every row it acknowledged."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from howdah.postgres import pool as pools
from howdah.postgres.database import SESSION_SETTINGS, Database
from howdah_lab.torture.servers import pooler
from howdah_lab.torture.servers.child_programs import Folder
from howdah_lab.torture.servers.cluster import Cluster
from howdah_lab.torture.servers.pooled import Pooled, PooledByTransaction
from howdah_lab.torture.servers.single import Single
from howdah_lab.torture.servers.small_disk import SmallLog, SmallTables
from kit.node import EVENTUALLY_TIMEOUT, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

LONG = 4 * EVENTUALLY_TIMEOUT
"""Seconds a server may take to recover on a busy machine."""
BROKEN = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Writer:
    """Inserts one number after the other, whatever happens, and remembers which were acknowledged."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._numbers = iter(range(1, 1_000_000))
        self.acked: set[int] = set()
        self.errors: list[BaseException] = []

    async def run(self) -> None:
        conn = None
        while True:
            number = next(self._numbers)
            try:
                if conn is None or conn.is_closed():
                    conn = await asyncpg.connect(self._dsn, timeout=3, command_timeout=3, statement_cache_size=0)
                await conn.execute("insert into kept values ($1, repeat('x', 500))", number)
                self.acked.add(number)
            except BROKEN as error:
                self.errors.append(error)
                if conn is not None:
                    conn.terminate()
                conn = None
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.005)

    async def writes(self) -> None:
        """Wait until it gets something through that it was not told of before."""
        before = len(self.acked)

        async def more() -> bool:
            return len(self.acked) > before

        await eventually(more, LONG)

    async def fails(self) -> None:
        """Wait until it hears of a failure again."""
        before = len(self.errors)

        async def more() -> bool:
            return len(self.errors) > before

        await eventually(more, LONG)


@asynccontextmanager
async def writing(dsn):
    """A writer at work; in the end, every number it was told is kept must be there."""
    conn = await asyncpg.connect(dsn, statement_cache_size=0)
    await conn.execute("create table kept (n int primary key, filler text)")
    await conn.close()
    writer = Writer(dsn)
    task = asyncio.create_task(writer.run())
    try:
        await writer.writes()
        yield writer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    conn = await asyncpg.connect(dsn, statement_cache_size=0)
    there = {row["n"] for row in await conn.fetch("select n from kept")}
    await conn.close()
    assert writer.acked - there == set()


@asynccontextmanager
async def running(kind):
    """A server of this kind, if this machine has what it takes."""
    if missing := kind.missing():
        pytest.skip(missing)
    async with kind() as server:
        yield server


@pytest.mark.parametrize("stop", ["restart", "crash"])
async def test_a_single_server_keeps_its_rows(stop):
    async with running(Single) as server, writing(server.dsn) as writer:
        for down in (0.0, 0.3):
            if stop == "restart":
                await server.restart(down)
            else:
                await server.crash()
                await writer.fails()
                await server.start()
            moment = await server.writable(LONG)
            assert moment <= time.monotonic()
            await writer.writes()
        assert writer.errors
        folder = server.folder.path
    assert not folder.exists()


async def test_a_server_that_is_down_takes_no_writes():
    async with running(Single) as server:
        await server.stop_immediately()

        with pytest.raises(Exception, match=r"took no write in 0\.2 s"):
            await server.writable(0.2)
        with pytest.raises(OSError):
            await asyncpg.connect(server.dsn, timeout=3)
        folder = server.folder.path
    assert not folder.exists()


async def test_settings_are_those_of_the_server():
    async with Single({"work_mem": "5MB"}) as server:
        conn = await asyncpg.connect(server.dsn)
        try:
            assert await conn.fetchval("show work_mem") == "5MB"
            assert await conn.fetchval("show fsync") == "on"
            assert await conn.fetchval("show synchronous_commit") == "on"
        finally:
            await conn.close()


async def test_a_server_that_cannot_start_leaves_nothing_behind(monkeypatch):
    made = []
    real = Folder.__init__

    def note(self):
        real(self)
        made.append(self.path)

    monkeypatch.setattr(Folder, "__init__", note)

    with pytest.raises(Exception, match="shared_buffers"):
        async with Single({"shared_buffers": "nonsense"}):
            pass
    assert made
    assert not any(path.exists() for path in made)


async def test_a_full_disk_of_tables_refuses_and_recovers():
    async with running(SmallTables) as server, writing(server.dsn) as writer:
        await server.fill()
        with pytest.raises(Exception, match="took no write"):
            await server.writable(0.2)

        async def refused():
            return any(isinstance(error, asyncpg.DiskFullError) for error in writer.errors)

        await eventually(refused, LONG)
        await server.give_room()
        await server.writable(LONG)
        await writer.writes()
        disk = server.folder.disk
    assert not os.path.ismount(disk)
    assert not disk.exists()


async def test_a_full_disk_of_the_log_ends_the_server_and_loses_nothing():
    async with running(SmallLog) as server, writing(server.dsn) as writer:
        await server.fill()
        assert not server.is_running
        await writer.fails()

        await server.give_room()
        await server.writable(LONG)
        await writer.writes()
        disk = server.folder.disk
    assert not os.path.ismount(disk)
    assert not disk.exists()


@pytest.mark.parametrize("kind", [Pooled, PooledByTransaction], ids=["session", "transaction"])
async def test_a_pooler_is_restarted_and_so_is_the_server_behind_it(kind):
    async with running(kind) as server, writing(server.dsn) as writer:
        await server.restart_pooler(down=0.2)
        await server.writable(LONG)
        await writer.writes()
        assert writer.errors

        await server.server.restart()
        await server.writable(LONG)
        await writer.writes()


async def test_a_pooler_that_hides_itself_and_the_backends_costs_no_long_statement(monkeypatch):
    monkeypatch.setattr(pools, "CHECK_INTERVAL", 0.2)
    monkeypatch.setattr(pools, "LATE_AFTER", 0.1)
    monkeypatch.setattr(pooler, "CONFIG", f"{pooler.CONFIG}ignore_startup_parameters = {', '.join(SESSION_SETTINGS)}\n")
    async with running(Pooled) as server:
        database = Database(server.dsn)
        pool = await database.pool(1, command_timeout=None)
        try:
            assert not database.pooled
            assert await pool.fetchval("select 1 from pg_sleep(2)") == 1
        finally:
            pool.terminate()


@pytest.mark.timeout(300)
async def test_a_cluster_keeps_every_row_through_kill_switchover_and_freeze():
    async with running(Cluster) as server, writing(server.dsn) as writer:
        first = await server.kill_leader()
        assert not server.members[first].program.is_alive
        await writer.fails()
        await server.writable(LONG)
        await writer.writes()
        second = await server.leader()
        assert second != first
        await server.revive()

        assert await server.switchover() == first
        await server.writable(LONG)
        await writer.writes()
        assert await server.leader() == first

        await server.whole()
        assert await server.freeze_leader(25) == first
        await writer.fails()
        await server.writable(LONG)
        await writer.writes()
        await server.whole()
        assert await server.leader() == second
        folder = Path(server.members["n1"].program.log).parent
    assert not folder.exists()
