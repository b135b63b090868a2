"""Connections to one database that reconnect after failures.

Every connection has a command timeout and TCP keepalive, so an unreachable server is detected. A connection that
breaks, times out or reports a read-only server is dropped and replaced at the next use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from howdah import telemetry
from howdah.child_process import reject_second_run
from howdah.errors import ConfigError, DatabaseFull, DatabaseUnreachable, SchemaError
from howdah.postgres import settings
from howdah.postgres.dsn import hide_password, plain_dsn
from howdah.postgres.pool import DirectConnection, Pool, Watchdog, open_pool
from howdah.postgres.settings import ROLE_SETTINGS, SESSION_SETTINGS
from howdah.postgres.sql import identifier

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
"""The server has no disk space, memory or connection slot left; the statement was not executed."""

NO_SCHEMA = (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)
"""The schema does not exist, or lacks something; nothing was executed."""

UNCERTAIN: tuple[type[BaseException], ...] = (*BROKEN, asyncio.CancelledError)
"""Errors after which the protocol state of a connection is unknown."""

CLOSE_TIMEOUT = 2.0
"""Seconds for a dropped connection to close cleanly before it is terminated."""
_closing: set[asyncio.Task[None]] = set()


def full(dsn: str, error: BaseException) -> DatabaseFull:
    """Return the error for a server without disk space, memory or connections."""
    return DatabaseFull(f"{hide_password(dsn)} has no room left, nothing happened: {error}")


class Database:
    """A DSN and a schema. Opens connections; holds none."""

    def __init__(self, dsn: str, *, schema: str = "howdah", command_timeout: float = 10.0) -> None:
        identifier(schema)
        if "$howdah$" in schema or schema.startswith("pg_"):
            raise ConfigError(f"schema {schema!r} cannot be used; choose a name without 'pg_' in front")
        self.dsn = plain_dsn(dsn)
        self.schema = schema
        self.command_timeout = command_timeout
        self.pooled: bool | None = None
        """True if the connection goes through a transaction pooler; known after the first connection."""
        self._checked = False

    def __repr__(self) -> str:
        return f"Database({hide_password(self.dsn)!r}, schema={self.schema!r})"

    async def connect(self, role: str, *, again: bool = False) -> asyncpg.Connection:
        """Open one connection. A transaction pooler is detected by its rejection of startup settings."""
        reject_second_run()
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
        """Raise :class:`ConfigError` if a setting of the role or database is incompatible."""
        conn = await self.connect("check")
        try:
            await settings.check(conn, writes=writes)
            if not self._checked:
                await settings.warn_if_asynchronous(conn)
            self._checked = True
        finally:
            conn.terminate()

    async def _open(self, role: str) -> asyncpg.Connection:
        if not self.pooled:
            try:
                startup = {**SESSION_SETTINGS, **ROLE_SETTINGS.get(role, {}), "application_name": f"howdah {role}"}
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
            await settings.prepare(conn)
            if "server_settings" in options:
                await settings.apply(conn)
        except BaseException:
            conn.terminate()
            raise
        return conn

    async def pool(self, size: int, *, command_timeout: float | None = 0) -> Pool:
        """Open a pool of up to ``size`` connections; ``command_timeout=None`` removes the statement timeout.

        Dead connections are then found by :class:`howdah.postgres.pool.Watchdog`.
        """
        reject_second_run()
        if not self._checked:  # also detects a pooler
            await self.check()
        options: dict[str, Any] = (
            {"statement_cache_size": 0}
            if self.pooled
            else {
                "server_settings": {**SESSION_SETTINGS, "application_name": "howdah pool"},
                "connection_class": DirectConnection,
            }
        )
        pool = await open_pool(
            self.dsn,
            min_size=0,
            max_size=size,
            init=self._prepare,
            timeout=self.command_timeout,
            command_timeout=self.command_timeout if command_timeout == 0 else command_timeout,
            **options,
        )
        if command_timeout is None and not self.pooled:
            pool.watchdog = Watchdog(Session(self, "watch"), pool.expire_connections)
        return pool

    async def _prepare(self, conn: asyncpg.Connection) -> None:
        """Initialise a pooled connection within the command timeout, which later statements may not have."""
        try:
            async with asyncio.timeout(self.command_timeout):
                await settings.prepare(conn)
                if not self.pooled:
                    conn.pending_reply.pid = await settings.apply(conn)
        except BaseException:
            conn.terminate()  # the pool would close it and wait for a reply
            raise


class Session:
    """One connection that reopens itself: opened at first use, dropped on errors, opened again at the next use.

    A failed call raises; the caller's loop backs off and retries. Concurrent calls are serialised.
    """

    def __init__(self, database: Database, role: str, *, on_connect: Callable[[], None] | None = None) -> None:
        self.database = database
        self.role = role
        self._on_connect = on_connect
        self._conn: asyncpg.Connection | None = None
        self._opened = False
        self._lock = asyncio.Lock()

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
        """Hold the connection for several statements."""
        async with self._lock:
            if self._conn is None or self._conn.is_closed():
                self._conn = await self.database.connect(self.role, again=self._opened)
                self._opened = True
                if self._on_connect:
                    self._on_connect()
            try:
                yield self._conn
            except UNCERTAIN:
                self.drop()
                raise

    def drop(self) -> None:
        """Discard the connection; the next call opens a new one."""
        conn, self._conn = self._conn, None
        if conn is not None:
            close_in_background(conn)

    async def close(self) -> None:
        """Close the connection if one is open."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await _close(conn)


def close_in_background(conn: asyncpg.Connection) -> None:
    """Close a connection in the background and cancel its running statement, which would otherwise keep running."""
    if conn.is_closed():
        conn.terminate()
        return
    closing = asyncio.get_running_loop().create_task(_close(conn), name="howdah close")
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


async def _close(conn: asyncpg.Connection) -> None:
    try:
        await conn.close(timeout=CLOSE_TIMEOUT)
    except (*BROKEN, asyncpg.PostgresError):
        conn.terminate()


def host_of(dsn: str) -> str:
    """Return the host of a DSN, for messages."""
    return urlsplit(dsn).hostname or "local socket"


def raise_if_no_schema(database: Database, error: BaseException) -> None:
    """Raise :class:`SchemaError` if this error says that the schema, or something in it, does not exist."""
    if database.schema in str(error):
        raise SchemaError(f"{error} in {hide_password(database.dsn)}; run `howdah migrate`") from error


class Acquired:
    """``async with Acquired(pool, database, "enqueueing") as conn``: raises :class:`DatabaseUnreachable` or
    :class:`DatabaseFull` or :class:`SchemaError` instead of errors of the driver.
    """

    def __init__(self, pool: Callable[[], Any], database: Database, doing: str) -> None:
        self._open = pool
        self._database = database
        self._doing = doing
        self._holder: Any = None

    async def __aenter__(self) -> Any:
        try:
            self._holder = (await self._open()).acquire()
            return await self._holder.__aenter__()
        except FULL as error:
            raise full(self._database.dsn, error) from error
        except BROKEN as error:
            raise DatabaseUnreachable(f"cannot reach {hide_password(self._database.dsn)}: {error}") from error

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self._holder.__aexit__(kind, error, trace)
        if isinstance(error, NO_SCHEMA):
            raise_if_no_schema(self._database, error)
        if isinstance(error, FULL):
            raise full(self._database.dsn, error) from error
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            raise DatabaseUnreachable(
                f"{hide_password(self._database.dsn)} takes no writes, nothing happened: {error}; it is a standby, or"
                " default_transaction_read_only is on"
            ) from error
        if isinstance(error, BROKEN):
            raise DatabaseUnreachable(
                f"lost {hide_password(self._database.dsn)} while {self._doing}, it may or may not have happened:"
                f" {error}"
            ) from error
