"""Settings of connections: those Howdah sets, and those of a role or database that it rejects.

``ALTER ROLE`` and ``ALTER DATABASE`` can change almost every setting of a session. What Howdah's statements depend on
is sent in the startup message, which overrides both. What cannot be sent there is set right after. A transaction
pooler accepts neither, so behind one an incompatible setting is rejected with its name.
"""

from __future__ import annotations

import logging
import socket
from typing import Any

import asyncpg

from howdah.errors import ConfigError

log = logging.getLogger("howdah")

# The plan of a hot statement must not depend on statistics; see docs/why/engine.md.
SESSION_SETTINGS = {
    "jit": "off",
    "enable_seqscan": "off",
    "enable_indexscan": "on",
    "enable_nestloop": "on",
    "plan_cache_mode": "force_generic_plan",
    # a statement after a lock wait must see what was committed meanwhile
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "standard_conforming_strings": "on",
}
# With statistics of an empty queue, a bitmap scan would read and sort the whole queue for its first rows.
ROLE_SETTINGS = {"claim": {"enable_bitmapscan": "off"}}

EXAMINE = """
select pg_catalog.pg_backend_pid() as pid,
    pg_catalog.current_setting('default_transaction_isolation') as isolation,
    pg_catalog.current_setting('default_transaction_read_only') as read_only,
    pg_catalog.current_setting('standard_conforming_strings') as strings,
    pg_catalog.current_setting('synchronous_commit') as commit,
    coalesce(pg_catalog.current_setting('transaction_timeout', true), '0') as transaction_timeout,
    coalesce(pg_catalog.current_setting('idle_session_timeout', true), '0') as idle_timeout,
    pg_catalog.current_setting('session_replication_role') as replication_role,
    pg_catalog.current_setting('search_path') as path,
    pg_catalog.current_schemas(true)::pg_catalog.text[] as schemas
"""
SOURCE = "select source from pg_catalog.pg_settings where name = $1"
SET = "select pg_catalog.set_config($1, $2, false)"
# Without pg_catalog in the list PostgreSQL searches it first. Not listed first: that is where new tables would go.
SET_PATH = """
select pg_catalog.set_config('search_path', coalesce((
    select pg_catalog.string_agg(pg_catalog.quote_ident(s.name), ', ' order by s.place)
    from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality s(name, place)
    where s.name operator(pg_catalog.<>) 'pg_catalog'), '""'), false)
"""


async def apply(conn: Any) -> int | None:
    """Set what cannot be sent at startup; return the backend's pid, or None behind a pooler."""
    row = await conn.fetchrow(EXAMINE)
    if row["pid"] != conn.get_server_pid():  # a pooler reports a pid of its own; the session is shared
        return None
    if row["transaction_timeout"] != "0":  # PostgreSQL 17 or newer; older servers reject it at startup
        await conn.execute(SET, "transaction_timeout", "0")
    # The server would close LISTEN connections and idle pooled ones. Not sent at startup: servers before PostgreSQL 14
    # reject it, and must get Howdah's own message about the version.
    if row["idle_timeout"] != "0":
        await conn.execute(SET, "idle_session_timeout", "0")
    # Acknowledged jobs and outcomes must survive a server crash. Not sent at startup, where it would weaken
    # remote_apply. A value in the DSN is the operator's decision for Howdah's connections and is kept.
    if row["commit"] == "off" and await conn.fetchval(SOURCE, "synchronous_commit") != "client":
        await conn.execute(SET, "synchronous_commit", "on")
    if _shadows(row):
        await conn.execute(SET_PATH)
    return int(row["pid"])


async def check(conn: Any, *, writes: bool = False) -> None:
    """Raise :class:`ConfigError` naming a setting that is incompatible and could not be changed.

    ``writes``: also require that the session accepts writes.
    """
    found = await conn.fetchrow(EXAMINE)
    if found["replication_role"] == "replica":
        raise ConfigError(
            "session_replication_role is 'replica' for this role or database, so triggers do not fire and the event log"
            " would lose events; reset it for the role that Howdah uses"
        )
    if writes and found["read_only"] == "on":
        raise ConfigError(
            "default_transaction_read_only is on for this role or database, so nothing can be claimed or recorded;"
            " turn it off, or connect as another role"
        )
    through = "Howdah cannot change through a pooler"
    if found["isolation"] != "read committed":
        raise ConfigError(
            f"default_transaction_isolation is {found['isolation']!r}, which {through}; set it to 'read committed' for"
            " the role that Howdah uses"
        )
    if found["strings"] != "on":
        raise ConfigError(f"standard_conforming_strings is off, which {through}; turn it on for this role")
    if found["transaction_timeout"] != "0":
        raise ConfigError(
            f"transaction_timeout is {found['transaction_timeout']}, which {through}; set it to 0 for this role"
        )
    if _shadows(found):
        raise ConfigError(
            f"search_path is {found['path']!r}: schemas before pg_catalog can replace PostgreSQL's own functions, which"
            f" {through}; leave pg_catalog out of it, then it comes first"
        )


async def warn_if_asynchronous(conn: Any) -> None:
    """Log a warning if this connection still commits asynchronously."""
    if await conn.fetchval("select pg_catalog.current_setting('synchronous_commit')") == "off":
        log.warning(
            "synchronous_commit is off on Howdah's connections (through a pooler, or in the DSN): a crash of the server"
            " can forget jobs and outcomes of the last moment; set it to on for the role that Howdah uses"
        )


def _shadows(found: Any) -> bool:
    schemas = [schema for schema in found["schemas"] if not schema.startswith("pg_temp")]
    return "pg_catalog" in schemas and schemas[0] != "pg_catalog"


async def prepare(conn: asyncpg.Connection) -> None:
    """Transfer JSON as bytes and enable TCP keepalive."""
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
