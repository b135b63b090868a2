"""One database: how to connect to it, and connections that heal themselves.

Every connection has a command timeout and TCP keepalive, so a black hole is noticed. A connection that breaks,
stops answering or turns out to be on a read-only server is dropped and replaced at the next use.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from howdah import telemetry
from howdah.errors import ConfigError, DatabaseFull, DatabaseUnreachable
from howdah.pg import settings
from howdah.pg.pool import Direct, Pool, open_pool
from howdah.pg.settings import STEADIER, STEADY
from howdah.pg.sql import identifier
from howdah.pg.watch import Watch

BROKEN: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.exceptions.AdminShutdownError,
    asyncpg.exceptions.CrashShutdownError,
    asyncpg.exceptions.CannotConnectNowError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
    asyncpg.exceptions.InternalClientError,
)
"""Errors after which a connection is not used again."""

FULL = asyncpg.exceptions.InsufficientResourcesError
"""What a server says that has no room on its disk, in its memory or for another connection. It did not do it."""

UNSURE: tuple[type[BaseException], ...] = (*BROKEN, asyncio.CancelledError)
"""Errors after which nobody knows what a connection is in the middle of."""

PARTING = 2.0
"""Seconds a connection that is let go of has to end well."""
_parting: set[asyncio.Task[None]] = set()


def dsn_from_environment() -> str | None:
    """The DSN of ``HOWDAH_DSN``, ``DATABASE_URL`` or the ``PG*`` variables, in that order."""
    for name in ("HOWDAH_DSN", "DATABASE_URL"):
        if os.environ.get(name):
            return os.environ[name]
    if any(os.environ.get(name) for name in ("PGHOST", "PGDATABASE", "PGSERVICE")):
        return "postgresql://"
    return None


def hide_password(dsn: str) -> str:
    """The DSN as it may be shown to people.

    >>> hide_password("postgresql://me:secret@db/app")
    'postgresql://me:***@db/app'
    """
    hidden = re.sub(r"(://[^:/@]*):[^?\s]*@", r"\1:***@", dsn)  # a password may hold / and @
    return re.sub(r"(password=)[^\s&]+", r"\1***", hidden, flags=re.IGNORECASE)


def full(dsn: str, error: BaseException) -> DatabaseFull:
    """The error for a server without room."""
    return DatabaseFull(f"{hide_password(dsn)} has no room left, nothing happened: {error}")


class Database:
    """Where the data lives: a DSN and a schema. Opens connections; holds none."""

    def __init__(self, dsn: str, *, schema: str = "howdah", command_timeout: float = 10.0) -> None:
        identifier(schema)
        if "$howdah$" in schema or schema.startswith("pg_"):
            raise ConfigError(f"schema {schema!r} cannot be used; choose a name without 'pg_' in front")
        self.dsn = dsn
        self.schema = schema
        self.command_timeout = command_timeout
        self.pooled: bool | None = None
        """Whether a pooler stands in between; known after the first connection."""
        self._checked = False

    def __repr__(self) -> str:
        return f"Database({hide_password(self.dsn)!r}, schema={self.schema!r})"

    async def connect(self, role: str, *, again: bool = False) -> asyncpg.Connection:
        """Open one connection. A transaction pooler is recognised by its refusal of settings, and served."""
        try:
            conn = await self._open(role)
        except BROKEN as error:
            raise DatabaseUnreachable(f"cannot reach {hide_password(self.dsn)}: {error}") from error
        except FULL as error:
            raise full(self.dsn, error) from error
        except ValueError as error:
            raise ConfigError(f"cannot read {hide_password(self.dsn)}: {error}; check the DSN") from error
        telemetry.emit("pg.connect", role=role, again=again)
        return conn

    async def check(self, *, writes: bool = False) -> None:
        """Raise :class:`ConfigError` if a setting of the role or the database would break something."""
        conn = await self.connect("check")
        try:
            await settings.refuse(conn, writes=writes)
            if not self._checked:
                await settings.warn(conn)
            self._checked = True
        finally:
            conn.terminate()

    async def _open(self, role: str) -> asyncpg.Connection:
        if not self.pooled:
            try:
                startup = {**STEADY, **STEADIER.get(role, {}), "application_name": f"howdah {role}"}
                conn = await self._connect(server_settings=startup)
            except asyncpg.exceptions.ProtocolViolationError as error:
                if "startup parameter" not in str(error):
                    raise
                self.pooled = True
            else:
                self.pooled = False
                return conn
        return await self._connect(statement_cache_size=0)

    async def _connect(self, **options: Any) -> asyncpg.Connection:
        conn = await asyncpg.connect(
            self.dsn, timeout=self.command_timeout, command_timeout=self.command_timeout, **options
        )
        try:
            await prepare(conn)
            if "server_settings" in options:
                await settings.settle(conn)
        except BaseException:
            conn.terminate()
            raise
        return conn

    async def pool(self, size: int, *, command_timeout: float | None = 0) -> Pool:
        """Open a pool of up to ``size`` connections; ``command_timeout=None`` lets statements take their time.

        They are watched then: see :mod:`howdah.pg.watch`.
        """
        if not self._checked:  # tells also whether a pooler stands in between
            await self.check()
        options: dict[str, Any] = (
            {"statement_cache_size": 0}
            if self.pooled
            else {"server_settings": {**STEADY, "application_name": "howdah pool"}, "connection_class": Direct}
        )
        pool = await open_pool(
            self.dsn,
            min_size=0,
            max_size=size,
            init=self._prepare,
            reset=_leave,
            timeout=self.command_timeout,
            command_timeout=self.command_timeout if command_timeout == 0 else command_timeout,
            **options,
        )
        if command_timeout is None and not self.pooled:
            pool.watch = Watch(Session(self, "watch"), pool.expire_connections)
        return pool

    async def _prepare(self, conn: asyncpg.Connection) -> None:
        """Make a connection of a pool ready; unlike the statements on it later, that must not take long."""
        try:
            async with asyncio.timeout(self.command_timeout):
                await prepare(conn)
                if not self.pooled:
                    conn.asking.pid = await settings.settle(conn)
        except BaseException:
            conn.terminate()  # the pool would close it, and wait for an answer to that
            raise


async def _leave(_conn: asyncpg.Connection) -> None:
    """Howdah leaves nothing on a session that would disturb the next, so nothing is reset and a round trip is saved."""


async def prepare(conn: asyncpg.Connection) -> None:
    """JSON travels as bytes, and a dead peer is noticed."""
    await conn.set_type_codec("json", schema="pg_catalog", encoder=_as_is, decoder=_as_is, format="binary")
    transport = getattr(conn, "_transport", None)
    sock = transport and transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 10_000),
        ):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _as_is(value: bytes) -> bytes:
    return value


class Session:
    """One connection that heals itself: opened at first use, dropped when it breaks, opened again at the next.

    A failed call raises; the caller's loop backs off and tries again. Calls take turns.
    """

    def __init__(self, database: Database, role: str, *, on_connect: Callable[[], None] | None = None) -> None:
        self.database = database
        self.role = role
        self._on_connect = on_connect
        self._conn: asyncpg.Connection | None = None
        self._opened = False
        self._turn = asyncio.Lock()

    async def fetch(self, statement: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Run one statement and return its rows."""
        async with self.use() as conn:
            rows: list[Any] = await conn.fetch(statement, *args, timeout=timeout)
            return rows

    async def fetchrow(self, statement: str, *args: Any, timeout: float | None = None) -> Any:
        """Run one statement and return its first row."""
        rows = await self.fetch(statement, *args, timeout=timeout)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *args: Any, timeout: float | None = None) -> Any:
        """Run one statement and return the first column of its first row."""
        row = await self.fetchrow(statement, *args, timeout=timeout)
        return row[0] if row is not None else None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Take the connection for several statements."""
        async with self._turn:
            if self._conn is None or self._conn.is_closed():
                self._conn = await self.database.connect(self.role, again=self._opened)
                self._opened = True
                if self._on_connect:
                    self._on_connect()
            try:
                yield self._conn
            except UNSURE:
                self.drop()
                raise

    def drop(self) -> None:
        """Throw the connection away; the next call opens a new one."""
        conn, self._conn = self._conn, None
        if conn is not None:
            part(conn)

    async def close(self) -> None:
        """Close the connection, if there is one."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await _close(conn)


def part(conn: asyncpg.Connection) -> None:
    """Let go of a connection. The server is told to end what still runs on it, or that would go on without anybody."""
    if conn.is_closed():
        conn.terminate()
        return
    parting = asyncio.get_running_loop().create_task(_close(conn), name="howdah part")
    _parting.add(parting)
    parting.add_done_callback(_parting.discard)


async def _close(conn: asyncpg.Connection) -> None:
    try:
        await conn.close(timeout=PARTING)
    except (*BROKEN, asyncpg.PostgresError):
        conn.terminate()


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows into the arrays that ``unnest`` takes.

    >>> columns([(1, "a"), (2, "b")], 2)
    [[1, 2], ['a', 'b']]
    """
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def host_of(dsn: str) -> str:
    """The host a DSN names, for messages."""
    return urlsplit(dsn).hostname or "local socket"
