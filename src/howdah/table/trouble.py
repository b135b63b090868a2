"""Trouble: what nodes noted of a table while they worked on it: refused rows, and apps that contradict each other."""

from __future__ import annotations

from typing import Any

from howdah.table.catalog import Relation
from howdah.table.declaration import MOST_DECLARED, Declared, conflict, conflicts
from howdah.table.finding import Finding
from howdah.table.statements import build

LATELY = 3600.0
"""Seconds for which a refusal is shown; one that lasts is noted again every minute."""
MOST_SHOWN = 20


async def trouble(conn: Any, table: Relation, schema: str) -> list[Finding]:
    """The rows that the table refused to have updated lately, and declarations that contradict each other."""
    names = {"schema": schema}
    rows = await conn.fetch(build("refused", names), table.quoted, LATELY, MOST_SHOWN)
    found = [
        Finding(
            where=f"row {row['id']}",
            what=f"table {table} refuses the {row['act']} of row {row['id']}: {row['message']}",
            fix="change the row, or the constraint or trigger that refuses it",
        )
        for row in rows
    ]
    declared = [Declared(**row) for row in await conn.fetch(build("declared", names), table.quoted, MOST_DECLARED)]
    for one, other in conflicts(declared):
        fix = "declare the same stalled_after in both, or conditions (where) that exclude each other"
        found.append(Finding(where="conflict", what=conflict(str(table), one, other), fix=fix))
    return found
