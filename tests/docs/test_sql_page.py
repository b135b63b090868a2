"""docs/reference/sql.md names every function and table, and none that does not exist."""

from __future__ import annotations

import re

import psycopg

from docs.test_pages import ROOT
from howdah.postgres.database import Database

PAGE = ROOT / "docs" / "reference" / "sql.md"


def test_every_function_is_on_the_page(database: Database) -> None:
    page = PAGE.read_text()
    with psycopg.connect(database.dsn) as conn:
        there = {
            name
            for (name,) in conn.execute(
                "select proname from pg_proc where pronamespace = %s::regnamespace", [database.schema]
            )
        }
    documented = set(re.findall(r"`(?:howdah\.)?(\w+)(?:\(|`)", page))
    _, internal = page.split("Internal functions: ")
    assert there - documented == set()
    assert set(re.findall(r"`(\w+)`", internal)) - there == set()


def test_every_table_is_on_the_page(database: Database) -> None:
    with psycopg.connect(database.dsn) as conn:
        tables = {
            name
            for (name,) in conn.execute(
                "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p')"
                " and not relispartition",
                [database.schema],
            )
        }
    _, listed = PAGE.read_text().split("\n## Tables\n")
    assert set(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == tables
