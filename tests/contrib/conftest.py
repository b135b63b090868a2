"""What the tests of borrowed connections share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from foreign_connections import FOREIGN_CONNECTIONS, AsyncForeignConnection, ForeignConnection
from psycopg.rows import namedtuple_row

from howdah import Howdah, Task
from howdah.postgres.database import Database


@pytest.fixture(params=FOREIGN_CONNECTIONS, ids=lambda name: name.replace(" ", "-"))
def foreign(request: pytest.FixtureRequest, direct: Database) -> Iterator[ForeignConnection | AsyncForeignConnection]:
    """A connection of another library, in every kind."""
    with FOREIGN_CONNECTIONS[request.param](direct.dsn) as foreign:
        yield foreign


@pytest.fixture
def task(app: Howdah) -> Task[[str], None]:
    """Something to enqueue."""

    @app.task(name="note", queue="notes")
    def note(text: str) -> None: ...

    return note


@pytest.fixture
def observer(direct: Database) -> Iterator[Any]:
    """A connection of one's own to look into the tables with."""
    with psycopg.connect(direct.dsn, autocommit=True, row_factory=namedtuple_row) as conn:
        yield conn
