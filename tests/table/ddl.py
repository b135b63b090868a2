"""Return the DDL of tables that Howdah can work on."""

from __future__ import annotations

from howdah.postgres.sql import identifier
from howdah.table.contract import NEEDS, Columns


def ddl(table: str = "uploads", columns: Columns | None = None, *, id: str | None = None, extra: str = "") -> str:
    """A complete table of the contract."""
    lines = []
    for role, name in (columns or Columns()).items():
        lines.append(f"{identifier(name)} {id if role == 'id' and id else NEEDS[role].ddl}")
    return f"create table {table} ({', '.join([*lines, *filter(None, [extra])])})"
