from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from django.core.cache import cache
from foreign_connections import engine_for
from sqlalchemy import orm

from howdah import ConfigError, Howdah, Task
from howdah.contrib import colon, percent, wrap
from howdah.postgres.database import Database


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (object, "builtins.object"),
        (lambda: "default", "builtins.str"),
        (lambda: sqlite3.connect(":memory:"), "sqlite3.Connection"),
        (lambda: engine_for(""), "sqlalchemy.engine.base.Engine"),
        (orm.sessionmaker, "sqlalchemy.orm.session.sessionmaker"),
        (lambda: psycopg.sql.SQL("select 1"), "psycopg.sql.SQL"),
        (lambda: cache, "django.utils.connection.ConnectionProxy"),
    ],
)
def test_what_is_no_connection_is_named(make: Callable[[], Any], name: str, task: Task[[str], None]) -> None:
    with pytest.raises(ConfigError, match=f"^cannot enqueue through a {name}; give an asyncpg, psycopg,"):
        task.using(conn=make()).enqueue_sync("hello")


def test_a_sqlalchemy_connection_to_another_database_is_refused(task: Task[[str], None]) -> None:
    with (
        sqlalchemy.create_engine("sqlite://").connect() as conn,
        pytest.raises(ConfigError, match=r"^cannot enqueue through a connection to sqlite; give one"),
    ):
        task.using(conn=conn).enqueue_sync("hello")


def test_a_proxy_counts_as_what_it_stands_for(app: Howdah, task: Task[[str], None], direct: Database) -> None:
    class Traced:
        def __init__(self, conn: Any) -> None:
            self.__dict__["conn"] = conn

        def __getattr__(self, name: str) -> Any:
            return getattr(self.conn, name)

        @property
        def __class__(self) -> type:
            return type(self.conn)

    with psycopg.connect(direct.dsn) as conn:
        assert task.using(conn=Traced(conn)).enqueue_sync("hello").fresh


def test_nothing_is_imported_that_the_caller_does_not_use() -> None:
    script = """
import sys, howdah
from howdah.contrib import wrap
wrap(object())
print(sorted({"psycopg", "sqlalchemy", "django"} & set(sys.modules)))
import sqlalchemy
with sqlalchemy.create_engine("sqlite://").connect() as conn:
    print(wrap(conn) is not None)
print(sorted({"psycopg", "sqlalchemy.orm", "sqlalchemy.ext.asyncio", "django"} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines() == ["[]", "True", "[]"]


def test_an_unknown_object_is_not_borrowed() -> None:
    assert wrap(object()) is None


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select :a, :b_c", "select %(a)s, %(b_c)s"),
        ('select :a from "x%:a"', 'select %(a)s from "x%%:a"'),
        ('select :a from "say ""%:a"""', 'select %(a)s from "say ""%%:a"""'),
        ("select ':a%', 'it''s :a', :a % 2", "select ':a%%', 'it''s :a', %(a)s %% 2"),
    ],
)
def test_percent_translates_only_outside_of_quotes(statement: str, expected: str) -> None:
    assert percent(statement) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select :a, :b_c", "select :a, :b_c"),
        ('select :a from "x%:a::b"', r'select :a from "x%\:a\:\:b"'),
        ("select ':a', 'it''s :a', :a", r"select '\:a', 'it''s \:a', :a"),
    ],
)
def test_colon_escapes_only_inside_of_quotes(statement: str, expected: str) -> None:
    assert colon(statement) == expected
