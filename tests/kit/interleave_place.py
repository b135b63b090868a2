"""A database that many meetings share, and the three connections they need."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg import sql as names

from howdah.postgres.database import Database
from kit.roles import worker

numbers = itertools.count()


class Trio(NamedTuple):
    """Who looks on, and the two that meet."""

    watch: Any
    one: Any
    other: Any


def meeting_place(server: Any, template: str) -> Iterator[Database]:
    """A fresh, migrated database, without a pooler in between."""
    name = f"howdah_meet_{os.getpid()}_{next(numbers)}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        create = names.SQL("create database {} template {}")
        conn.execute(create.format(names.Identifier(name), names.Identifier(template)))
        yield Database(server.dsn_for(name))
        conn.execute(names.SQL("drop database if exists {} with (force)").format(names.Identifier(name)))


@asynccontextmanager
async def trio(database: Database) -> AsyncIterator[Trio]:
    ours = worker(database)
    conns = Trio(await database.connect("watch"), await ours.connect("one"), await ours.connect("other"))
    try:
        yield conns
    finally:
        for conn in conns:
            conn.terminate()
