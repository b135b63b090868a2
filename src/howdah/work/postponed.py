"""Postponed: outcomes the store could not record yet, each with the time of its next try."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from howdah.outcome import Ack

log = logging.getLogger("howdah")

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds before an outcome is tried again; doubled each time. The first is short: the lock may be our heartbeat's."""
REPORT_AFTER = 10.0
"""Seconds after which the log says that outcomes wait."""

Key = tuple[int, Any]


class _Entry:
    """One outcome: when it is tried again, and how long it has waited."""

    __slots__ = ("ack", "due", "pause", "since")

    def __init__(self, ack: Ack, now: float) -> None:
        self.ack = ack
        self.pause = FIRST_PAUSE
        self.since = now
        self.due = now + FIRST_PAUSE


class Postponed:
    """Outcomes of rows that are locked. They wait here, and those that come later are sent meanwhile."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._reported = False

    def __len__(self) -> int:
        return len(self._entries)

    def settle(self, acks: Sequence[Ack]) -> None:
        """Note what came of outcomes that were sent: those still postponed are tried again, the others are over."""
        now = time.monotonic()
        for ack in acks:
            key = (ack.job.token, ack.job.id)
            if not ack.postponed:
                self._entries.pop(key, None)
            elif entry := self._entries.get(key):
                entry.pause = min(LONGEST_PAUSE, 2 * entry.pause)
                entry.due = now + entry.pause
            else:
                self._entries[key] = _Entry(ack, now)
        self._report(now)

    def take(self) -> list[Ack]:
        """The outcomes to be sent again now; :meth:`settle` must be told of each."""
        if not self._entries:
            return []
        now = time.monotonic()
        due = [entry for entry in self._entries.values() if entry.due <= now]
        for entry in due:
            entry.due = float("inf")
        return [entry.ack for entry in due]

    def next_in(self) -> float:
        """Seconds until the next outcome is to be sent again."""
        return max(0.0, min((entry.due for entry in self._entries.values()), default=0.0) - time.monotonic())

    def _report(self, now: float) -> None:
        """Log once that outcomes wait, until none does any more."""
        if not self._entries:
            self._reported = False
        elif not self._reported and any(now - entry.since > REPORT_AFTER for entry in self._entries.values()):
            self._reported = True
            ids = [entry.ack.job.id for entry in self._entries.values()][:5]
            log.warning(
                "%d outcomes cannot be recorded yet: a transaction has locked the rows (%s)",
                len(self._entries),
                ", ".join(map(str, ids)),
            )
