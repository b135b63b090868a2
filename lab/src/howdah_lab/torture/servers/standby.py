"""A primary with a standby that follows it, is cut off from it, and is promoted in its place."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import asyncpg

from howdah.errors import DatabaseUnreachable
from howdah.postgres.embedded import server as embedded
from howdah_lab.torture.servers.child_programs import in_thread
from howdah_lab.torture.servers.single import Single, Unflushed
from howdah_lab.torture.servers.writable import until_writable

COPIED_WITHIN = 120.0
"""Seconds in which the data of a primary has to be copied."""
REACHED_WITHIN = 60.0
"""Seconds in which a standby has to follow, to be gone, or to be promoted."""
LOOK_EVERY = 0.05


class Standby(Unflushed):
    """A server that begins as a copy of another one, and follows it."""

    def __init__(self, primary: Single, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings)
        self._primary = primary

    async def promote(self) -> None:
        """Make it a primary; returns when it takes writes."""
        assert await ask(self, f"select pg_promote(true, {REACHED_WITHIN:.0f})"), "it was not promoted"

    async def _start_first(self) -> None:
        await in_thread(self._copy)
        await super()._start_first()

    def _copy(self) -> None:
        home, owner = self.folder.make("server"), self.folder.owner
        for name in ("password", "howdah.lock"):
            shutil.copy(self._primary._home / name, home / name)
            self.folder.give(home / name)
        program = str(embedded.find().folder / "pg_basebackup")
        command = [program, "-D", str(home / "data"), "-R", "-c", "fast", "--no-sync", "-d"]
        account: dict[str, Any] = {"user": owner.uid, "group": owner.gid, "extra_groups": []} if owner else {}
        subprocess.run(  # noqa: S603 - our own command
            [*command, self._primary.dsn], check=True, timeout=COPIED_WITHIN, cwd=home, capture_output=True, **account
        )


class Replicated:
    """A primary and its standby. ``dsn`` and ``address`` are those of the primary, and change with a promotion."""

    synchronous: ClassVar[bool]
    """True if a commit waits until the standby has it."""

    def __init__(self) -> None:
        self.primary: Single = Unflushed()
        self.standby: Standby | None = None
        self._past: Single | None = None

    @property
    def dsn(self) -> str:
        """Of the superuser of the primary; the password stays the same."""
        return self.primary.dsn

    @property
    def direct(self) -> str:
        """The same: nothing stands in between."""
        return self.dsn

    @property
    def address(self) -> tuple[str, int]:
        """Where the primary listens."""
        return self.primary.address

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks to run it, and how to install it."""
        if (lacking := Single.missing()) is not None:
            return lacking
        if not (embedded.find().folder / "pg_basebackup").exists():
            return "a standby needs pg_basebackup beside the PostgreSQL server; install PostgreSQL's client programs"
        return None

    async def __aenter__(self) -> Self:
        await self.primary.__aenter__()
        try:
            await self.follow()
        except BaseException:
            await self.primary.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in (self._past, self.standby, self.primary):
            if server is not None:
                await server.__aexit__()

    async def writable(self, timeout: float) -> float:
        """Wait until the primary takes writes, at most ``timeout`` seconds; returns the monotonic moment."""
        return await until_writable(self.dsn, timeout)

    async def follow(self) -> None:
        """Give the primary a new standby; returns when that has everything the primary has."""
        assert self.standby is None, "there is one already"
        past, self._past = self._past, None
        if past is not None:
            await past.__aexit__()
        self.standby = await Standby(self.primary).__aenter__()
        await _until(self.primary, "select exists (select from pg_stat_replication where state = 'streaming')")
        if self.synchronous:
            await ask(self.primary, "alter system set synchronous_standby_names = '*'")
            await ask(self.primary, "select pg_reload_conf()")
            await _until(self.primary, "select exists (select from pg_stat_replication where sync_state = 'sync')")
        at = await ask(self.primary, "select pg_current_wal_lsn()::text")
        await _until(self.standby, f"select pg_last_wal_receive_lsn() >= '{at}'::pg_lsn")

    async def cut_off(self) -> None:
        """Let the standby receive nothing more."""
        assert self.standby is not None
        await ask(self.standby, "alter system set primary_conninfo = ''")
        await ask(self.standby, "select pg_reload_conf()")
        await _until(self.standby, "select not exists (select from pg_stat_wal_receiver)")

    async def crash(self) -> None:
        """Kill the postmaster of the primary."""
        await self.primary.crash()

    async def promote(self) -> None:
        """Put the standby in the place of the primary, which has crashed and does not come back."""
        assert self.standby is not None
        await self.standby.promote()
        self._past, self.primary, self.standby = self.primary, self.standby, None


class SynchronouslyReplicated(Replicated):
    """Nothing is acknowledged before the standby has it."""

    synchronous = True


class AsynchronouslyReplicated(Replicated):
    """The standby may lack what was acknowledged last."""

    synchronous = False


async def ask(server: Single, statement: str) -> Any:
    """Return the first value of one statement on a connection of its own."""
    conn = await asyncpg.connect(server.dsn, timeout=10, command_timeout=REACHED_WITHIN + 10)
    try:
        return await conn.fetchval(statement)
    finally:
        conn.terminate()


async def _until(server: Single, question: str) -> None:
    until = time.monotonic() + REACHED_WITHIN
    while not await ask(server, question):
        if time.monotonic() > until:
            raise DatabaseUnreachable(f"in {REACHED_WITHIN:g} s it did not come to this: {question}")
        await asyncio.sleep(LOOK_EVERY)
