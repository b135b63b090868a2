"""What the tests of borrowed connections share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row
from ways import WAYS, AsyncWay, Way

from howdah import Howdah, Task
from howdah.postgres.database import Database


@pytest.fixture(params=WAYS, ids=lambda name: name.replace(" ", "-"))
def way(request: pytest.FixtureRequest, direct: Database) -> Iterator[Way | AsyncWay]:
    """A connection of another library, in every kind."""
    with WAYS[request.param](direct.dsn) as way:
        yield way


@pytest.fixture
def task(app: Howdah) -> Task[[str], None]:
    """Something to enqueue."""

    @app.task(name="note", queue="notes")
    def note(text: str) -> None: ...

    return note


@pytest.fixture
def look(direct: Database) -> Iterator[Any]:
    """A connection of one's own to look into the tables with."""
    with psycopg.connect(direct.dsn, autocommit=True, row_factory=namedtuple_row) as conn:
        yield conn
