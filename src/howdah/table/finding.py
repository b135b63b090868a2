"""Finding: one thing that is missing or wrong in a table."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is missing or wrong."""

    where: str
    what: str
    fix: str
    sql: Sequence[str] = ()
    """Statements that put it right; none when only a person can."""
