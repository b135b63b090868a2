"""Input of the checks of a single fault after the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from howdah_lab.torture.books import Books
from howdah_lab.torture.ledger import LedgerEntry
from howdah_lab.torture.site import TortureRun


@dataclass(frozen=True, slots=True)
class Evidence:
    """The books of a run, and a connection to read further tables. All processes of the crew have ended."""

    site: TortureRun
    conn: asyncpg.Connection
    sql: Mapping[str, str]
    books: Books
    entries: Sequence[LedgerEntry]
