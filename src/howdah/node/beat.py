"""The heartbeat of a node: that it lives, and the leases of its jobs; one statement whatever it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from howdah.node.registry import Registration
from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.work.execute import Attempt

log = logging.getLogger("howdah")


class Pulse(NamedTuple):
    """What a node says of itself."""

    state: str
    running: int
    deaf: bool
    beside: int
    """Slots taken by what no lease shows: rows of tables, jobs that take several, handlers that do not end."""


class Holder(Protocol):
    """Who holds leases, and must hear what became of them. Called in the event loop, but for ``tokens``."""

    def tokens(self) -> list[int]: ...

    def renewed(self, tokens: Sequence[int], at: float) -> None: ...

    def lose(self, tokens: Sequence[int], reason: str) -> None: ...

    def lose_jobs(self, keys: Sequence[tuple[int, int | str]], reason: str) -> None: ...

    def cancel(self, ids: Sequence[int | str]) -> None: ...

    def stop(self, *, now: bool = False) -> None: ...

    @property
    def running(self) -> list[Attempt]: ...


class NodeBeat:
    """Renews the job leases of one holder and says that the node lives."""

    def __init__(
        self,
        database: Database,
        registration: Registration,
        *,
        lease: float,
        holder: Holder,
        pulse: Callable[[], Pulse],
        drain: Callable[[], None],
    ) -> None:
        self._registration = registration
        self._lease = lease
        self._holder = holder
        self._pulse = pulse
        self._drain = drain
        self.statement = sql.load("howdah.node", schema=database.schema)["heartbeat"]

    async def __call__(self, session: Session) -> Callable[[], None]:
        pulse, tokens, at = self._pulse(), self._holder.tokens(), time.monotonic()
        # a reply slower than a third of a lease is as bad as none
        patience = max(1.0, self._lease / 3)
        node = self._registration.node
        row = await session.fetchrow(self.statement, node, tokens, self._lease, *pulse, timeout=patience)
        lost, wanted = list(row["lost"]), list(row["cancel"])
        if not row["registered"]:  # pruned while this process was frozen, or forgotten in a failover
            await self._registration.insert_again(session)
            log.warning("the row of node %d was gone; it is registered again", node)

        def heed() -> None:
            self._holder.renewed([token for token in tokens if token not in lost], at)
            if lost:
                self._holder.lose(lost, "the lease expired and was taken back")
            if wanted:
                self._holder.cancel(wanted)
            if row["leaving"]:
                self._drain()

        return heed
