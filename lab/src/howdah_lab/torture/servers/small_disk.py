"""Servers whose tables, or whose write-ahead log, are on a disk that can be filled to the last byte."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import asyncpg

from howdah.errors import DatabaseUnreachable
from howdah_lab.torture.servers.child_programs import Folder, in_thread
from howdah_lab.torture.servers.single import Single
from howdah_lab.torture.servers.writable import until_writable

MEGABYTE = 1024 * 1024
DISK_TIMEOUT = 60.0
"""Seconds until the server must have found out that its disk is full."""

# A row that needs a page of its own, so that no room in old pages can hide that there are no new ones.
PROBE = """
create schema howdah_small;
create table howdah_small.probe (filler text) tablespace small;
alter table howdah_small.probe alter filler set storage plain
"""
INSERT = "insert into howdah_small.probe values (repeat('x', 7000))"
WRITE_MUCH = "select pg_logical_emit_message(true, 'howdah', repeat('x', 4000000))"


class SmallDisk(Single, ABC):
    """Something of the server is on a disk of its own, in memory."""

    size: ClassVar[int]
    needs: ClassVar[Mapping[str, str]]
    """Settings it cannot do without."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, version: int | None = None) -> None:
        super().__init__({**(settings or {}), **self.needs}, version=version)

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks to run it, and how to install it."""
        if os.geteuid() != 0:
            return "only root may mount a small disk; run as root"
        folder = Folder()
        try:
            mount(folder.disk, MEGABYTE)
        except (OSError, subprocess.SubprocessError) as error:
            return f"a small disk cannot be mounted here: {error}; allow it (CAP_SYS_ADMIN)"
        finally:
            folder.remove()
        return Single.missing()

    async def fill(self) -> None:
        """Take all the room there is; returns when the server has found out."""
        await in_thread(self._take_room)
        async with asyncio.timeout(DISK_TIMEOUT):
            await self._found_out()

    async def give_room(self) -> None:
        """Give the room back, and start the server if it has ended."""
        self._ballast.unlink(missing_ok=True)
        if not self.is_running:
            await self.start()

    @abstractmethod
    async def _found_out(self) -> None:
        """Return when the server has noticed that there is no room."""

    @property
    def _ballast(self) -> Path:
        return self.folder.disk / "ballast"

    def _take_room(self) -> None:
        block = bytes(os.statvfs(self.folder.disk).f_bsize)
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while os.write(file, block):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(file)


class SmallTables(SmallDisk):
    """All new tables are on the small disk. While it is full, the server refuses what needs room there."""

    size = 96 * MEGABYTE
    needs: ClassVar[Mapping[str, str]] = {"default_tablespace": "small"}

    async def writable(self, timeout: float) -> float:
        """Wait until there is room for another page, at most ``timeout`` seconds; returns the monotonic moment."""
        return await until_writable(self.dsn, timeout, INSERT)

    async def _furnish(self) -> None:
        mount(self.folder.disk, self.size)
        location = self.folder.make("disk/tables")
        conn = await asyncpg.connect(self.dsn)
        try:
            make = await conn.fetchval("select format('create tablespace small location %L', $1::text)", str(location))
            await conn.execute(make)
            await conn.execute("grant create on tablespace small to public")
            await conn.execute(PROBE)
        finally:
            await conn.close()

    async def _found_out(self) -> None:
        conn = await asyncpg.connect(self.dsn)
        try:
            while True:
                await conn.execute(INSERT)
                await in_thread(self._take_room)  # space that was freed meanwhile
        except asyncpg.DiskFullError:
            return
        finally:
            await conn.close()


class SmallLog(SmallDisk):
    """The write-ahead log is on the small disk. When that is full, the server ends and cannot be started."""

    size = 192 * MEGABYTE
    needs: ClassVar[Mapping[str, str]] = {"min_wal_size": "32MB", "max_wal_size": "64MB"}

    async def _furnish(self) -> None:
        await self._leave()
        mount(self.folder.disk, self.size)
        await in_thread(self._move)
        await self.start()

    def _move(self) -> None:
        here, there = self._home / "data" / "pg_wal", self.folder.disk / "wal"
        subprocess.run(["cp", "--archive", here, there], check=True)  # noqa: S603, S607
        shutil.rmtree(here)
        here.symlink_to(there)

    async def _found_out(self) -> None:
        while self._postmaster() is not None:
            with suppress(DatabaseUnreachable):
                await until_writable(self.dsn, 0.0, WRITE_MUCH)
        await self._leave()


def mount(path: Path, size: int) -> None:
    """Mount a disk of ``size`` bytes in memory on a new folder."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0711", "tmpfs", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=10)  # noqa: S603
