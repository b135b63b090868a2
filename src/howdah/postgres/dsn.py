"""Addresses of databases: where they are found, which forms are accepted, and how they are shown."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, urlencode

from howdah.errors import ConfigError

SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9.-]*)(?:\+(?P<driver>\w+))?://")
OF_SQLALCHEMY = frozenset({"async_fallback", "prepared_statement_cache_size", "prepared_statement_name_func"})
"""Parameters of SQLAlchemy's drivers that are not settings of a connection."""


def dsn_from_environment() -> str | None:
    """Return the DSN of ``HOWDAH_DSN``, ``DATABASE_URL`` or the ``PG*`` variables, in that order."""
    for name in ("HOWDAH_DSN", "DATABASE_URL"):
        if os.environ.get(name):
            return os.environ[name]
    if any(os.environ.get(name) for name in ("PGHOST", "PGDATABASE", "PGSERVICE")):
        return "postgresql://"
    return None


def hide_password(dsn: str) -> str:
    """Return the DSN without its password.

    >>> hide_password("postgresql://me:secret@db/app")
    'postgresql://me:***@db/app'
    """
    hidden = re.sub(r"(://[^:/@]*):[^?\s]*@", r"\1:***@", dsn)  # a password may hold / and @
    return re.sub(r"(password=)[^\s&]+", r"\1***", hidden, flags=re.IGNORECASE)


def plain_dsn(dsn: str) -> str:
    """Return the DSN as the server's own tools take it: without the driver that SQLAlchemy's URLs name.

    Raises :class:`ConfigError` if it is not an address of a PostgreSQL database.

    >>> plain_dsn("postgresql+asyncpg://me@db/app?ssl=require&prepared_statement_cache_size=0")
    'postgresql://me@db/app?sslmode=require'
    """
    found = SCHEME.match(dsn)
    if found is None:
        raise ConfigError(f"invalid DSN {hide_password(dsn)!r}; write postgresql://user@host:port/database")
    if found["scheme"].lower() not in ("postgresql", "postgres"):
        raise ConfigError(
            f"invalid DSN {hide_password(dsn)!r}: not PostgreSQL; write postgresql://user@host:port/database"
        )
    if not found["driver"]:
        return dsn
    address, _, query = dsn[found.end() :].partition("?")
    settings = [("sslmode" if name == "ssl" else name, value) for name, value in parse_qsl(query)]
    kept = urlencode([(name, value) for name, value in settings if name not in OF_SQLALCHEMY])
    return f"postgresql://{address}" + (f"?{kept}" if kept else "")
