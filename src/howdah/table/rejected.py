"""Rejected updates: isolates the rows whose update the user's table rejects.

A constraint or a trigger may reject the update of one row, and PostgreSQL then undoes the whole statement. So a
rejected batch is halved until the rejected rows are alone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import asyncpg

from howdah import telemetry

log = logging.getLogger("howdah")

T = TypeVar("T")
R = TypeVar("R")

OURS = frozenset({"08", "0A", "25", "26", "28", "34", "3B", "3D", "3F", "40", "42", "53", "55", "57", "58", "F0", "XX"})
"""Classes of SQLSTATE that speak of the server, the statement or the moment. All others, those of the user included,
speak of a row."""
OF_FUNCTIONS = frozenset({"0A", "3D", "3F", "42", "55"})
"""The ones that concern a row when a trigger or another function raised the error, as where one branch of a
trigger names a column that does not exist."""
LOCK_NOT_AVAILABLE = "55P03"
ROW_SECURITY = "ExecWithCheckOptions"
"""The server function that rejects a row by a policy, with the SQLSTATE of a missing privilege."""
PASSING = frozenset({"23505", "23P01", "HW010"})
"""Rejections that may end without a change of the row: a conflict with another row, or a trigger dropped the update."""
LONGEST_MESSAGE = 1000
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a rejected row is retried; doubled each time."""
MOST_REMEMBERED = 10_000
MOST_NOTED = 100
LOG_AGAIN_AFTER = 3600.0
"""Seconds until the same rejection is logged again."""


class Dropped(Exception):
    """A BEFORE trigger returned NULL: the update did not happen, and there is no error."""

    sqlstate = "HW010"

    def __init__(self) -> None:
        super().__init__("a BEFORE trigger of the table dropped the update by returning NULL")


def is_rejection(error: BaseException) -> bool:
    """Return whether the user's table rejected a row, as opposed to an outage."""
    if isinstance(error, Dropped):
        return True
    if not isinstance(error, asyncpg.PostgresError) or not error.sqlstate:
        return False
    kind = error.sqlstate[:2]
    if kind not in OURS or error.server_source_function == ROW_SECURITY:
        return True
    return kind in OF_FUNCTIONS and error.sqlstate != LOCK_NOT_AVAILABLE and bool(error.context)


def is_passing(error: BaseException) -> bool:
    """Return whether the same update may be accepted later without a change of the row."""
    return getattr(error, "sqlstate", None) in PASSING


def message_of(error: BaseException) -> str:
    """Return the database's message, short enough to be stored."""
    detail = getattr(error, "detail", None)
    text = f"{error}: {detail}" if detail else str(error)
    return text.replace("\0", "")[:LONGEST_MESSAGE]


async def split(
    items: Sequence[T],
    act: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    refuses: Callable[[BaseException], bool] = is_rejection,
) -> tuple[list[R], list[tuple[T, Exception]]]:
    """Act on all items in one call; when it is rejected, halve them until the rejected ones are alone.

    Returns the results of the successful calls, and each rejected item with its error. Other errors are raised.
    """
    done: list[R] = []
    refused: list[tuple[T, Exception]] = []
    parts = deque([items] if items else [])
    while parts:
        part = parts.popleft()
        try:
            done += await act(part)
        except Exception as error:
            if not refuses(error):
                raise
            if len(part) == 1:
                refused.append((part[0], error))
            else:
                middle = len(part) // 2
                parts.extendleft((part[middle:], part[:middle]))
    return done, refused


class _Entry(NamedTuple):
    first: float
    until: float
    pause: float
    tries: int
    passing: bool


class RejectedRows:
    """Rows rejected lately, left out with a growing backoff."""

    def __init__(self) -> None:
        self._entries: dict[Any, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """True if no more rows can be remembered."""
        return len(self._entries) >= MOST_REMEMBERED

    def put(self, id: Any, *, passing: bool = False) -> None:
        """Leave this row out for a while."""
        now, old = time.monotonic(), self._entries.pop(id, None)
        if self.full:
            del self._entries[next(iter(self._entries))]
        pause = min(LONGEST_PAUSE, old.pause * 2) if old else FIRST_PAUSE
        first, tries = (old.first, old.tries + 1) if old else (now, 1)
        self._entries[id] = _Entry(first, now + pause, pause, tries, passing)

    def ids(self) -> list[Any]:
        """The rows to leave out now. One that is accepted later is forgotten, one that is deleted after a while."""
        now = time.monotonic()
        for id in [id for id, each in self._entries.items() if each.until < now - 2 * LONGEST_PAUSE]:
            del self._entries[id]
        return [id for id, each in self._entries.items() if each.until > now]

    def forget(self, id: Any) -> None:
        """Remove a row that was accepted."""
        self._entries.pop(id, None)

    def tries(self, id: Any) -> int:
        """Return the number of consecutive rejections of this row."""
        entry = self._entries.get(id)
        return entry.tries if entry else 0

    def since(self, id: Any) -> float:
        """Return the time this row was first rejected, on the monotonic clock; never: infinity."""
        entry = self._entries.get(id)
        return entry.first if entry else float("inf")

    def reconsider(self, most: int) -> None:
        """After a row ended: retry rows that may have conflicted with it, the longest waiting first."""
        waiting = [id for id, each in self._entries.items() if each.passing and each.until > 0][:most]
        for id in waiting:
            self._entries[id] = self._entries[id]._replace(until=0.0, pause=FIRST_PAUSE)


class RejectionNotes:
    """Reports rejections: each once in the log and in telemetry, and stored for the doctor."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._logged_at: dict[tuple[str, str], float] = {}
        self._unwritten: dict[tuple[str, str], str] = {}

    def add(self, act: str, refused: Sequence[tuple[Any, BaseException]]) -> None:
        """Add rejected rows; safe to call from another thread."""
        now, unlogged = time.monotonic(), []
        for id, error in refused:
            message = message_of(error)
            if len(self._unwritten) < MOST_NOTED:
                self._unwritten[str(id), act] = message
            key = (str(id), act)
            if now - self._logged_at.get(key, -LOG_AGAIN_AFTER) >= LOG_AGAIN_AFTER:
                if len(self._logged_at) >= MOST_REMEMBERED:
                    self._logged_at.clear()
                self._logged_at[key] = now
                unlogged.append((id, message))
        if unlogged:
            ids, message = [id for id, _ in unlogged], unlogged[0][1]
            more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
            log.warning("table %s refuses the %s of row %s%s: %s", self._table, act, ids[0], more, message)
            telemetry.emit("table.refused", table=self._table, act=act, ids=ids, message=message)

    def take(self) -> list[tuple[str, str, str]]:
        """Return row, act and message of those not yet written to the database."""
        taken, self._unwritten = self._unwritten, {}
        return [(id, act, message) for (id, act), message in taken.items()]
