"""Messages and exit codes of errors on the command line."""

from __future__ import annotations

import re

import asyncpg
import click

from howdah.errors import ArgumentError, ConfigError, DatabaseUnreachable, EventError, HowdahError, SchemaError
from howdah.postgres.database import BROKEN
from howdah.redact import scrub

INCOMPLETE = 1
USAGE = 2
UNREACHABLE = 3
SCHEMA = 4

# asyncpg raises these as errors of the server; for the user of a DSN they all mean a failed login
_NO_ENTRY = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.TooManyConnectionsError,
)
_CUT_OFF = (ConnectionRefusedError, ConnectionResetError, TimeoutError, asyncpg.InterfaceError)


def explain(error: BaseException) -> tuple[str, int] | None:
    """Return the message and exit code of ``error``; ``None`` if it needs a traceback."""
    if isinstance(error, click.exceptions.ClickException | click.exceptions.Exit | click.exceptions.Abort):
        return None
    code = _code(error)
    said = str(error) or type(error).__name__
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        said += "; connect as a role that may, docs/howto/deploy.md lists them"
    return None if code is None else (one_line(said), code)


def one_line(text: str) -> str:
    """Return ``text`` without secrets and line breaks.

    >>> one_line("cannot reach postgresql://me:se@c/ret@db/app:\\nrefused")
    'cannot reach postgresql://me:***@db/app: refused'
    """
    # to the last @ of the word: a password may itself hold @ and /
    hidden = re.sub(r"(://[^\s:/@]*):\S*@", r"\1:***@", text)
    return " ".join(scrub(hidden).split())


def _code(error: BaseException) -> int | None:
    match error:
        case ConfigError() | ArgumentError() | EventError():
            return USAGE
        case DatabaseUnreachable():
            wrong = isinstance(error.__cause__, asyncpg.exceptions.ClientConfigurationError)
            return USAGE if wrong else UNREACHABLE
        case SchemaError() | asyncpg.UndefinedTableError() | asyncpg.InvalidSchemaNameError():
            return SCHEMA
        case HowdahError():
            return INCOMPLETE
        case asyncpg.PostgresError():
            return UNREACHABLE if isinstance(error, (*_NO_ENTRY, *BROKEN)) else INCOMPLETE
        case _:
            return UNREACHABLE if isinstance(error, _CUT_OFF) else None
