"""Whatever a command lists it lists as JSON too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import psycopg
import pytest

from howdah.cli import main
from howdah.postgres.database import Database
from howdah.table import ddl
from howdah.table.options import TableOptions

LOOKS = ("list", "show", "count", "group", "say", "read", "examine", "explain", "print", "how", "which", "what", "why")
"""How the help of a command begins that looks at something."""
APART = {"completion", "demo", "table create"}
"""They print what another program takes, or put on a show."""
LISTS = {
    "consumers": (),
    "consumers parked list": ("View",),
    "consumers show": ("View",),
    "doctor": (),
    "job": ("1",),
    "jobs": (),
    "log read": (),
    "log status": (),
    "nodes": (),
    "queues": (),
    "schedules": (),
    "table check": ("uploads",),
    "table list": ("uploads",),
    "table status": ("uploads",),
    "token list": (),
    "top": (),
    "why": ("1",),
}


def walk(command: click.Command, path: tuple[str, ...], ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something by itself, by the words that call it."""
    if path and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from walk(inner, (*path, name), ctx)


def commands() -> dict[str, click.Command]:
    return dict(walk(main, (), click.Context(main)))


def speaks_json(command: click.Command) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_every_command_that_looks_speaks_json() -> None:
    first = {name: (command.help or "").split()[0].lower() for name, command in commands().items()}
    looking = {name for name, word in first.items() if word in LOOKS} - APART
    silent = {name for name in looking if not speaks_json(commands()[name])}

    assert len(looking) > 10
    assert silent == set()


def test_every_list_there_is_speaks_json() -> None:
    assert {name for name in LISTS if not speaks_json(commands()[name])} == set()


@pytest.fixture
def furnished(howdah: Any, direct: Database) -> Any:
    """A database with one of each."""
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        for statement in ddl.create(TableOptions(table="uploads")):
            conn.execute(statement)  # type: ignore[arg-type]
        conn.execute("insert into uploads default values")
        conn.execute("select howdah.enqueue('send')")
        conn.execute("select howdah.declare_scope('View', 1, null, null, 0)")
        conn.execute("select howdah.append('Order-1', '{\"type\": \"Placed\"}')")
        conn.execute("insert into howdah.node (name) values ('a:1')")
    return howdah


def test_each_list_is_json(furnished: Any) -> None:
    types = {}
    for name, more in LISTS.items():
        result = furnished(*name.split(), *more, "--json")
        assert result.exit_code in (0, 1), f"{name}: {result.output}"
        types[name] = type(json.loads(result.stdout))

    assert set(types.values()) == {dict, list}
    assert types["queues"] is types["jobs"] is types["nodes"] is types["doctor"] is list
