"""Admin: look at jobs and act on them; what the command line and the dashboard call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from howdah.pg.database import Database


class Admin:
    """Get, list, count, retry, cancel, pause."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._database = database
        self._pool = pool
