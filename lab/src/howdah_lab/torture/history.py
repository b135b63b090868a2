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
class History:
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


def from_ledger(entries: Sequence[LedgerEntry]) -> History:
    """Read the ledger."""
    history = History()
    for entry in entries:
        known = [(entry.front, mark) for mark in entry.marks]
        match entry.what:
            case "intend":
                history.intended.update(known)
                if entry.kind:
                    history.states.update(dict.fromkeys(known, entry.kind))
            case "acked":
                history.acked.update(set(known) - history.unsure)
                history.unknown.update(history.unsure.intersection(known))
            case "refused":
                history.refused.update(known)
            case "unknown":
                history.unknown.update(known)
            case "kept":
                _forget(history, set(entry.marks))
            case "start":
                history.starts[known[0]].append(entry)
            case "end":
                history.ends[known[0]].append(entry)
            case "lost":
                history.stale += len(known)
            case _:
                pass
    return history


def _forget(history: History, kept: set[int]) -> None:
    """A standby was promoted that has only this."""
    gone = {known for known in history.acked if known[1] not in kept}
    history.acked -= gone
    history.forgotten |= gone
    answered = history.acked | history.refused | history.unknown | history.forgotten
    history.unsure |= {known for known in history.intended - answered if known[1] not in kept}


async def read(folder: Path, conn: asyncpg.Connection, statements: dict[str, str]) -> tuple[History, list[LedgerEntry]]:
    """The ledger and the tables, and the ledger as it was written."""
    entries = ledger.read(folder)
    history = from_ledger(entries)
    history.effects = await conn.fetch(statements["effects"], timeout=120)
    history.events = await conn.fetch(statements["events"], timeout=120)
    history.misplaced = await conn.fetch(statements["places"], timeout=120)
    for row in await conn.fetch(statements["jobs"], timeout=120):
        history.jobs[row["mark"]].append(row)
    for row in await conn.fetch(statements["rows"], timeout=120):
        history.rows[row["mark"]].append(row)
    return history, entries
