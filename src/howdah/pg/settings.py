"""Settings of connections: which ones Howdah sets itself, and which settings of a role or a database it refuses.

``ALTER ROLE`` and ``ALTER DATABASE`` can change almost every setting of a session. What Howdah's statements depend on
is sent with the connection's startup, which comes last and wins. What cannot be sent there is set right after. A
transaction pooler takes neither, so there a setting that would break something is refused by name.
"""

from __future__ import annotations

import logging
from typing import Any

from howdah.errors import ConfigError

log = logging.getLogger("howdah")

# Hot statements must not depend on what ANALYZE saw last; see docs/why/engine.md.
STEADY = {
    "jit": "off",
    "enable_seqscan": "off",
    "enable_indexscan": "on",
    "enable_nestloop": "on",
    "plan_cache_mode": "force_generic_plan",
    # a lock is followed by a look that must see what was committed while it was waited for
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "standard_conforming_strings": "on",
}
# A queue that was analyzed empty and then filled would be read and sorted whole, to take its first rows.
STEADIER = {"claim": {"enable_bitmapscan": "off"}}

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


async def settle(conn: Any) -> int | None:
    """Set what could not be sent at startup; return the process at the other end, None if a pooler hides it."""
    row = await conn.fetchrow(EXAMINE)
    if row["pid"] != conn.get_server_pid():  # a pooler makes up its own: the session is not ours alone
        return None
    if row["transaction_timeout"] != "0":  # new in PostgreSQL 17, and unknown to startup before
        await conn.execute(SET, "transaction_timeout", "0")
    # The server would end connections that only listen, and pooled ones while they are idle. Not sent at startup: a
    # server before PostgreSQL 14 does not know it, and must be refused with a message of ours.
    if row["idle_timeout"] != "0":
        await conn.execute(SET, "idle_session_timeout", "0")
    # A job or an outcome that was acknowledged must survive a crash of the server. Not sent at startup, where it would
    # weaken remote_apply. In the DSN it is a decision about Howdah's own connections, and is respected.
    if row["commit"] == "off" and await conn.fetchval(SOURCE, "synchronous_commit") != "client":
        await conn.execute(SET, "synchronous_commit", "on")
    if _shadows(row):
        await conn.execute(SET_PATH)
    return int(row["pid"])


async def refuse(conn: Any, *, writes: bool = False) -> None:
    """Raise :class:`ConfigError` with the name of a setting that would break something and could not be changed.

    ``writes``: the session must also take writes.
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


async def warn(conn: Any) -> None:
    """Log a warning if this connection commits asynchronously all the same."""
    if await conn.fetchval("select pg_catalog.current_setting('synchronous_commit')") == "off":
        log.warning(
            "synchronous_commit is off on Howdah's connections (through a pooler, or in the DSN): a crash of the server"
            " can forget jobs and outcomes of the last moment; set it to on for the role that Howdah uses"
        )


def _shadows(found: Any) -> bool:
    schemas = [schema for schema in found["schemas"] if not schema.startswith("pg_temp")]
    return "pg_catalog" in schemas and schemas[0] != "pg_catalog"
