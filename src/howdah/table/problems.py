"""Problems that nodes recorded for a table: rejected rows, and conflicting declarations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from howdah.table.catalog import Relation
from howdah.table.declaration import MOST_DECLARED, TableDeclaration, conflict, conflicts
from howdah.table.names import build


class TableFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a table."""

    where: str
    what: str
    fix: str
    sql: Sequence[str] = ()
    """Statements that fix it; empty when it must be fixed by hand."""


LATELY = 3600.0
"""Seconds for which a rejection is shown; one that persists is recorded again every minute."""
MOST_SHOWN = 20


async def problems(conn: Any, table: Relation, schema: str) -> list[TableFinding]:
    """Return the rows whose update the table rejected lately, and conflicting declarations."""
    names = {"schema": schema}
    rows = await conn.fetch(build("refused", names), table.quoted, LATELY, MOST_SHOWN)
    found = [
        TableFinding(
            where=f"row {row['id']}",
            what=f"table {table} refuses the {row['act']} of row {row['id']}: {row['message']}",
            fix="change the row, or the constraint or trigger that refuses it",
        )
        for row in rows
    ]
    declared = [
        TableDeclaration(**row) for row in await conn.fetch(build("declared", names), table.quoted, MOST_DECLARED)
    ]
    for one, other in conflicts(declared):
        fix = "declare the same stalled_after in both, or conditions (where) that exclude each other"
        found.append(TableFinding(where="conflict", what=conflict(str(table), one, other), fix=fix))
    return found
