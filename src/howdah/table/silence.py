"""Silence: which rows are surely given up by their worker, after several looks.

A heartbeat passes over rows that a transaction has locked. So a row is given up only if it was silent *and not locked*
in every look over half of its stall time, in which its worker would have been heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

WATCHED_FROM = 0.4
"""Share of the stall time after which a silent row is watched."""
WATCHED_FOR = 0.5
"""Share of the stall time it is watched before it is given up: longer than a heartbeat."""
LONGEST_GAP = 0.5
"""Share of the stall time that may lie between two looks; after a longer gap, as of a frozen process, watching begins
anew."""
SHORTEST_GAP = 2.0
FOREIGN = 2.0
"""Stall times after which a row of another app is taken back: its own nodes seem to be gone."""


class Silent(NamedTuple):
    """A silent row, as a look saw it."""

    id: Any
    token: int | None
    heard: float
    looked: float
    """When it was seen, by the server's clock."""


class _Seen(NamedTuple):
    heard: float
    first: float
    last: float


def look_every(stall: float) -> float:
    """Seconds between two looks of a node, or a control plane, that declared this stall time.

    >>> look_every(30.0), look_every(2.0)
    (2.0, 0.5)
    """
    return min(2.0, stall / 4)


def gap_after(stall: float) -> float:
    """Seconds that may lie between two looks at a row with this stall time.

    >>> gap_after(30.0), gap_after(1.0)
    (15.0, 2.0)
    """
    return max(SHORTEST_GAP, LONGEST_GAP * stall)


class Silence:
    """The silent rows of one table, as one node has watched them. All times are the server's."""

    def __init__(self, heartbeat: float | None, every: float) -> None:
        self._heartbeat = heartbeat or 0.0
        self._least_gap = 2 * every
        """Looks that are ``every`` seconds apart have to do for rows with a shorter stall time of their own, too."""
        self._seen: dict[tuple[Any, int | None], _Seen] = {}

    @property
    def ids(self) -> list[Any]:
        """The rows that are watched."""
        return [id for id, _ in self._seen]

    def see(self, rows: Sequence[Any]) -> list[Silent]:
        """Note a look at the silent rows; returns those to be given up. Rows not among them were heard, or locked."""
        before, self._seen, over = self._seen, {}, []
        for row in rows:
            key, now, heard, stall = (row["id"], row["token"]), row["now"], row["heard"], row["stall"]
            seen, first = before.get(key), now
            if seen and seen.heard == heard and 0 <= now - seen.last <= max(gap_after(stall), self._least_gap):
                first = seen.first
            self._seen[key] = _Seen(heard, first, now)
            # never heard of, or marked as expired: nobody works on it
            expired = heard <= 0
            watched = now - first >= max(WATCHED_FOR * stall, self._heartbeat)
            if expired or (watched and row["silent"] >= stall * (1 if row["own"] else FOREIGN)):
                over.append(Silent(row["id"], row["token"], heard, now))
        return over

    def forget(self, id: Any, token: int | None) -> None:
        """This row is no longer watched."""
        self._seen.pop((id, token), None)
