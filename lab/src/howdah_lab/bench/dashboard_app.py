"""The application whose dashboard is measured: tasks, and a table. Only the control plane imports this."""

from __future__ import annotations

import os
from typing import Any

from howdah.postgres.sql import identifier
from howdah_lab.bench.app import SCHEMA, app

__all__ = ["app"]

rows = app.table(f"{identifier(os.environ.get('HOWDAH_SCHEMA', SCHEMA))}.bench_row", name="rows", order_by=["id"])


@rows.handler
async def nothing(_row: Any) -> None:
    """No node works on it here."""
