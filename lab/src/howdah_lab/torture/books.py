"""Ledger and tables side by side after a run: the input of the checker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from howdah_lab.torture import ledger
from howdah_lab.torture.ledger import LedgerEntry

Known = tuple[str, int]
"""A front and a mark."""


@dataclass(slots=True)
class Books:
    """The input of the checker."""

    intended: set[Known] = field(default_factory=set)
    acked: set[Known] = field(default_factory=set)
    refused: set[Known] = field(default_factory=set)
    """Certainly not accepted: the server returned an error, or the client rolled back."""
    unknown: set[Known] = field(default_factory=set)
    forgotten: set[Known] = field(default_factory=set)
    """Accepted by a primary whose standby had not received it when it was promoted: it does not exist any more."""
    unsure: set[Known] = field(default_factory=set)
    """Not answered yet when a standby was promoted that lacked it: either server may have given the answer."""
    states: dict[Known, str] = field(default_factory=dict)
    """The state in which something is to end, where its client said one."""
    starts: dict[Known, list[LedgerEntry]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[Known, list[LedgerEntry]] = field(default_factory=lambda: defaultdict(list))
    stale: int = 0
    """Outcomes that were rejected because their lease had expired."""
    effects: list[Any] = field(default_factory=list)
    jobs: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    """By mark: there should be one each."""
    rows: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    events: list[Any] = field(default_factory=list)
    misplaced: list[Any] = field(default_factory=list)

    @property
    def times(self) -> Counter[Known]:
        """Return the number of effects of each mark."""
        return Counter((row["front"], row["mark"]) for row in self.effects)


def open_books(entries: Sequence[LedgerEntry]) -> Books:
    """Read the ledger."""
    books = Books()
    for entry in entries:
        known = [(entry.front, mark) for mark in entry.marks]
        match entry.what:
            case "intend":
                books.intended.update(known)
                if entry.kind:
                    books.states.update(dict.fromkeys(known, entry.kind))
            case "acked":
                books.acked.update(set(known) - books.unsure)
                books.unknown.update(books.unsure.intersection(known))
            case "refused":
                books.refused.update(known)
            case "unknown":
                books.unknown.update(known)
            case "kept":
                _forget(books, set(entry.marks))
            case "start":
                books.starts[known[0]].append(entry)
            case "end":
                books.ends[known[0]].append(entry)
            case "lost":
                books.stale += len(known)
            case _:
                pass
    return books


def _forget(books: Books, kept: set[int]) -> None:
    """A standby was promoted that has only this."""
    gone = {known for known in books.acked if known[1] not in kept}
    books.acked -= gone
    books.forgotten |= gone
    answered = books.acked | books.refused | books.unknown | books.forgotten
    books.unsure |= {known for known in books.intended - answered if known[1] not in kept}


async def read(folder: Path, conn: asyncpg.Connection, statements: dict[str, str]) -> tuple[Books, list[LedgerEntry]]:
    """The ledger and the tables, and the ledger as it was written."""
    entries = ledger.read(folder)
    books = open_books(entries)
    books.effects = await conn.fetch(statements["effects"], timeout=120)
    books.events = await conn.fetch(statements["events"], timeout=120)
    books.misplaced = await conn.fetch(statements["places"], timeout=120)
    for row in await conn.fetch(statements["jobs"], timeout=120):
        books.jobs[row["mark"]].append(row)
    for row in await conn.fetch(statements["rows"], timeout=120):
        books.rows[row["mark"]].append(row)
    return books, entries
