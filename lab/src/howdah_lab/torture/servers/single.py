"""One server that is stopped, killed and started again on the same data."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from howdah.errors import ConfigError
from howdah.postgres.embedded import server as embedded
from howdah_lab.torture.servers.child_programs import Folder, in_thread
from howdah_lab.torture.servers.ports import HOST, free_ports
from howdah_lab.torture.servers.writable import until_writable

SETTINGS = {"max_connections": "300"}
UNFLUSHED = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "wal_buffers": "16MB"}
"""So late, and after so much of it, is written what no commit flushes: a claim."""
PORTS_TRIED = 3


class Single:
    """An embedded PostgreSQL with a port of its own, as careful with its data as any: fsync is on."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, version: int | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._version = version
        self._server: embedded.Server | None = None
        self._port = 0
        self._password = ""
        self._stack = AsyncExitStack()
        self.folder: Folder

    @property
    def dsn(self) -> str:
        """Of the superuser, over TCP."""
        return f"postgresql://postgres:{self._password}@{HOST}:{self._port}/postgres"

    @property
    def direct(self) -> str:
        """The same: nothing stands in between."""
        return self.dsn

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return HOST, self._port

    @property
    def is_running(self) -> bool:
        """True if it was started and not stopped since."""
        return self._server is not None

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks to run it, and how to install it."""
        try:
            embedded.find()
        except ConfigError as error:
            return str(error)
        return None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.folder = Folder()
            stack.push_async_callback(in_thread, self.folder.remove)
            stack.push_async_callback(self._leave)
            await self._start_first()
            self._password = (self._home / "password").read_text()
            await self._furnish()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def writable(self, timeout: float) -> float:
        """Wait until it takes writes, at most ``timeout`` seconds; returns the monotonic moment."""
        return await until_writable(self.dsn, timeout)

    async def start(self) -> None:
        """Start it on the data it has; returns when it answers."""
        assert self._server is None, "it runs already"
        await in_thread(self._begin)

    async def stop_immediately(self) -> None:
        """An immediate shutdown: nothing is written, all clients are disconnected, the next start has to recover."""
        await self._end(signal.SIGQUIT)

    async def crash(self) -> None:
        """Kill the postmaster without a word."""
        await self._end(signal.SIGKILL)

    async def restart(self, down: float = 0.0) -> None:
        """Stop it immediately, and start it again ``down`` seconds later."""
        await self.stop_immediately()
        await asyncio.sleep(down)
        await self.start()

    async def _furnish(self) -> None:
        """Prepare the running server before it is used."""

    async def _end(self, number: int) -> None:
        pid = self._postmaster()
        if pid is not None:
            os.kill(pid, number)
        await self._leave()

    async def _leave(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await in_thread(server.stop)  # returns when the server has exited for any reason

    async def _start_first(self) -> None:
        for left in reversed(range(PORTS_TRIED)):
            [self._port] = free_ports(1)
            try:
                await self.start()
            except ConfigError as error:
                if not left or "is taken" not in str(error):
                    raise
            else:
                return

    def _begin(self) -> None:
        # Noted here, so that it can be stopped even if the caller was cancelled meanwhile.
        self._server = embedded.start(self._home, port=self._port, settings=self._settings, version=self._version)

    @property
    def _home(self) -> Path:
        return self.folder.path / "server"

    def _postmaster(self) -> int | None:
        data = self._home / "data"
        try:
            pid = int((data / "postmaster.pid").read_text().partition("\n")[0])
            # Only if it is ours: the process id may have been reused.
            return pid if os.path.samefile(f"/proc/{pid}/cwd", data) else None
        except (OSError, ValueError):
            return None


class Unflushed(Single):
    """A server that has not written claims to its disk when it crashes, unless another commit did."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, version: int | None = None) -> None:
        super().__init__({**UNFLUSHED, **(settings or {})}, version=version)
