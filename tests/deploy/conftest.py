"""A database with the roles of deploy/roles.sql."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from deploy.people import as_role, drop_roles, give_passwords, run_roles
from howdah.pg.database import Database


@pytest.fixture
def roles(direct: Database) -> Iterator[Callable[[str], str]]:
    """A migrated database on which the file was run; gives its DSN by role."""
    run_roles(direct.dsn)
    try:
        give_passwords(direct.dsn)
        yield lambda role: as_role(direct.dsn, role)
    finally:
        drop_roles(direct.dsn)
