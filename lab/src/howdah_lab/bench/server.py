"""Servers of a benchmark: a PostgreSQL of its own or a given database, and a Redis for systems that need one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import asyncpg

from howdah.errors import HowdahError
from howdah.postgres.database import Database, host_of
from howdah.postgres.embedded import server as embedded
from howdah_lab.bench.bench_schema import BenchSchema
from howdah_lab.bench.driver import cpu_of, die_with_parent

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    # one is taken before each run, so that none falls into one run and not into the next
    "checkpoint_timeout": "1h",
    "max_connections": "300",
}
COMPARED_VERSION = 18
"""Version of PostgreSQL for comparisons."""
START_TIMEOUT = 30.0
"""Seconds for Redis to start."""


class EmbeddedServer:
    """A PostgreSQL in a temporary folder; its databases are copies of each other."""

    server = "of its own"

    def __init__(self, version: int | None = None) -> None:
        self._version = version
        self._server: embedded.Server | None = None
        self._conn: asyncpg.Connection | None = None
        self._pid = 0

    async def __aenter__(self) -> Self:
        self._server = embedded.start(version=self._version, settings=SETTINGS)
        self._conn = await asyncpg.connect(self._server.dsn)
        self._pid = int((self._server.folder / "data/postmaster.pid").read_text().split()[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.conn.close()
        finally:
            assert self._server is not None
            self._server.stop()

    @property
    def conn(self) -> asyncpg.Connection:
        """A connection to the database `postgres`."""
        assert self._conn is not None
        return self._conn

    def dsn(self, database: str) -> str:
        """Return the DSN of a database."""
        assert self._server is not None
        return self._server.dsn_for(database)

    async def make(self, database: str, template: str = "template0", *, large: bool = False) -> None:
        """Create a database as a copy of another; an existing one of that name is dropped."""
        await self.drop(database)
        how = "file_copy" if large else "wal_log"
        await self.conn.execute(f'create database "{database}" template "{template}" strategy {how}')
        await self.conn.execute("checkpoint")
        await asyncio.to_thread(os.sync)  # what was copied or dropped must not be written during a measurement

    async def exists(self, database: str) -> bool:
        """Return whether a database of that name exists."""
        return bool(await self.conn.fetchval("select exists(select from pg_database where datname = $1)", database))

    async def drop(self, database: str) -> None:
        """Drop a database, even if clients are connected."""
        await self.conn.execute(f'drop database if exists "{database}" with (force)')

    @property
    def cpu(self) -> float:
        """Seconds of CPU of all its processes, also of those that have ended."""
        ended = sum(map(int, Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[13:15]))
        children = map(int, Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split())
        running = sum(map(cpu_of, children), cpu_of(self._pid))
        return running + ended / float(os.sysconf("SC_CLK_TCK"))


class GivenDatabase:
    """A database named by ``--dsn``: all measurements use one schema in it, which is dropped at the end."""

    cpu = None
    """Unknown: the server can be another machine."""

    def __init__(self, database: Database) -> None:
        self.schema = BenchSchema(database)
        self.server = host_of(database.dsn)

    async def __aenter__(self) -> Self:
        await self.schema.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.schema.__aexit__()

    @property
    def conn(self) -> asyncpg.Connection:
        """A connection to the database."""
        return self.schema.conn

    def dsn(self, database: str) -> str:
        """Return the DSN; there is only one database."""
        return self.schema.database.dsn


class Redis:
    """A Redis with its default durability: a power failure loses what was not saved yet."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = str(self._folder / "redis.sock")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def start(self) -> None:
        """Start it, unless it runs, and wait until it accepts connections."""
        if self._process is not None:
            return
        with (self._folder / "log").open("wb") as log:
            command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", str(self._folder)]
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603
                command, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not os.path.exists(self.socket):  # noqa: ASYNC240
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise HowdahError(f"redis-server did not start: {(self._folder / 'log').read_text()[-500:]}")
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        """Stop it and delete its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def ask(self, command: str) -> int:
        """Return the number that a command returns."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        try:
            writer.write(command.encode() + b"\r\n")
            reply = (await reader.readline()).decode().strip()
        finally:
            writer.close()
        if reply[0] not in ":+":
            raise HowdahError(f"redis answered {reply!r} to {command!r}")
        return int(reply[1:]) if reply[0] == ":" else 0

    @property
    def cpu(self) -> float:
        """Seconds of CPU used so far."""
        return cpu_of(self._process.pid) if self._process else 0.0
