"""The page on SQL names every function there is, and none that is not."""

from __future__ import annotations

import re

import psycopg

from docs.test_pages import ROOT
from howdah.pg.database import Database

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
    told = set(re.findall(r"`(?:howdah\.)?(\w+)(?:\(|`)", page))
    _, internal = page.split("Internal functions: ")
    assert there - told == set()
    assert set(re.findall(r"`(\w+)`", internal)) - there == set()
