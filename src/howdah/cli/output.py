"""Output of commands: tables, aligned text and JSON; errors as one line, with an exit code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg
import click
import msgspec

from howdah.errors import ArgumentError, ConfigError, DatabaseUnreachable, EventError, HowdahError, SchemaError
from howdah.postgres.database import BROKEN
from howdah.redact import scrub

T = TypeVar("T")
LONGEST_CELL = 80


def show(
    things: Sequence[T], columns: Mapping[str, Callable[[T], Any]], *, as_json: bool = False, empty: str = "nothing"
) -> None:
    """Print ``things``; ``columns`` says what of each goes under which heading, JSON has everything."""
    if as_json:
        dump(things)
    elif not things:
        click.echo(empty)
    else:
        rows = [[cell(read(thing)) for read in columns.values()] for thing in things]
        (_rich if sys.stdout.isatty() else _plain)(list(columns), rows, _numeric(things, columns))


def dump(value: Any) -> None:
    """Print ``value`` as JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def cell(value: Any) -> str:
    """Format a value as one short line of plain text; control characters in job data do not reach the terminal.

    >>> cell(None), cell(True), cell(0.25), cell(["a", "b"]), cell("line\\nand \\x1b[31m red")
    ('-', 'yes', '0.25', 'a, b', 'line and \\\\x1b[31m red')
    """
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.2f}"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        case list() | tuple():
            text = ", ".join(map(str, value))
        case _:
            text = str(value)
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_CELL else line[: LONGEST_CELL - 1] + "…"


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def age(seconds: float | None) -> str:
    """Format a time span.

    >>> age(0.4), age(75), age(7260), age(200000), age(None)
    ('0s', '1m15s', '2h01m', '2d07h', '-')
    """
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def _numeric(things: Sequence[T], columns: Mapping[str, Callable[[T], Any]]) -> list[bool]:
    first = [read(things[0]) for read in columns.values()]
    return [isinstance(value, int | float) and not isinstance(value, bool) for value in first]


def _plain(headings: list[str], rows: list[list[str]], numeric: list[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = zip(row, widths, numeric, strict=True)
        click.echo(
            "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in cells).rstrip()
        )


def _rich(headings: list[str], rows: list[list[str]], numeric: list[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, right in zip(headings, numeric, strict=True):
        # only the last column may wrap: half a time or a number is no use
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != headings[-1])
    for row in rows:
        cells = zip(headings, row, strict=True)
        table.add_row(*(Text(text, style=STYLES.get(text, "") if name in STYLED else "") for name, text in cells))
    Console().print(table)


STYLED = ("state", "verdict")
STYLES = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "cancelled": "yellow",
    "ok": "green",
    "warn": "yellow",
    "bad": "bold red",
    "offline": "dim",
    "halted": "bold red",
    "retrying": "red",
    "silent": "red",
    "unassigned": "red",
    "paused": "yellow",
    "waiting": "yellow",
    "reshaping": "yellow",
}


INCOMPLETE = 1
"""Exit code: not everything was done, or something is wrong."""
USAGE = 2
UNREACHABLE = 3
"""Exit code: the database does not answer."""
SCHEMA = 4
"""Exit code: the schema is not the one that this code needs."""

# asyncpg raises these as errors of the server; for the user of a DSN they all mean a failed login
_LOGIN_FAILED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.TooManyConnectionsError,
)
_CONNECTION_LOST = (ConnectionRefusedError, ConnectionResetError, TimeoutError, asyncpg.InterfaceError)


def explain(error: BaseException) -> tuple[str, int] | None:
    """Return the message and exit code of ``error``; ``None`` if it needs a traceback."""
    if isinstance(error, click.exceptions.ClickException | click.exceptions.Exit | click.exceptions.Abort):
        return None
    code = _code(error)
    message = str(error) or type(error).__name__
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        message += "; connect as a role that may, docs/howto/deploy.md lists them"
    return None if code is None else (one_line(message), code)


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
            return UNREACHABLE if isinstance(error, (*_LOGIN_FAILED, *BROKEN)) else INCOMPLETE
        case _:
            return UNREACHABLE if isinstance(error, _CONNECTION_LOST) else None


def finish(code: int) -> None:
    """End the command with this exit code."""
    if code:
        click.get_current_context().exit(code)
