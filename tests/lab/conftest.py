"""A benchmark makes its own schema, as only the owner may."""

from __future__ import annotations

import pytest

from howdah.postgres.database import Database
from kit.roles import owner


@pytest.fixture
def database(database: Database) -> Database:
    """A fresh, migrated database, for its owner."""
    return owner(database)
