"""Evidence: what the judge of a fault may look at after the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from howdah.torture.books import Books
from howdah.torture.ledger import Entry
from howdah.torture.site import Site


@dataclass(frozen=True, slots=True)
class Evidence:
    """The books of a run, and a connection to read further tables. All processes of the crew have ended."""

    site: Site
    conn: asyncpg.Connection
    sql: Mapping[str, str]
    books: Books
    entries: Sequence[Entry]
