"""Contact: whether expired leases may be reset, or whether an outage kept their nodes from renewing them."""

from __future__ import annotations

from typing import NamedTuple

from howdah.postgres import sql
from howdah.postgres.database import Database, Session

SHORTEST_GAP = 2.0
"""Seconds without contact that count as an outage at least: shorter ones are those of a busy machine."""
SHORTEST_GRACE, LONGEST_GRACE = 4.0, 10.0
"""Seconds after an outage in which nodes renew their leases, and no lease is reset: longer than the longest pause
between two tries of a heartbeat."""


class Judged(NamedTuple):
    """Whose expired leases may be reset."""

    nodes: bool
    workers: bool
    """Nodes without a database."""
    until: float | None = None
    """The server's time until which this holds, in seconds since 1970. A reset that the server receives later was held
    back by an outage, in which leases expired that no node could renew."""


ALL = Judged(True, True)


def gap_of(lease: float) -> float:
    """Seconds without contact after which leases this long may have expired: they last at least two heartbeats.

    >>> gap_of(30.0), gap_of(2.0)
    (15.0, 2.0)
    """
    return max(SHORTEST_GAP, lease / 2)


def grace_of(lease: float) -> float:
    """Seconds that nodes with leases this long have after an outage.

    >>> grace_of(30.0), grace_of(2.0)
    (10.0, 4.0)
    """
    return min(LONGEST_GRACE, max(SHORTEST_GRACE, lease / 2))


class Contact:
    """Notes that this process reaches the server. ``remote``: it is a control plane."""

    def __init__(self, database: Database, session: Session, *, lease: float, remote: bool = False) -> None:
        self._session = session
        self._lease = lease
        self._remote = remote
        self._sql = sql.load("howdah.node", schema=database.schema)

    async def note(self) -> Judged:
        """Note it, and return whose expired leases may be reset now."""
        lease = self._lease
        row = await self._session.fetchrow(self._sql["note_contact"], self._remote, gap_of(lease), grace_of(lease))
        return Judged(row["nodes"], row["workers"], row["until"])
