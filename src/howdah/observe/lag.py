"""Lag: how the event log stands, and how far behind its consumers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from howdah.observe.census import TIMEOUT, Census
from howdah.pg.database import Database, Session


class Standing(NamedTuple):
    """How one consumer stands."""

    name: str
    events: int
    """Positions its part furthest behind has not passed yet; holes, open appends and events out of its scope count."""
    seconds: float
    """Age of the oldest event one of its parts has not seen; 0: all is seen."""
    halted: bool
    paused: bool
    unassigned: bool
    """Whether a part of it is at no live node."""
    parked: int


class LogStanding(NamedTuple):
    """How the log and all its consumers stand."""

    head: int
    frontier: int
    age: float
    """Seconds the oldest transaction with an open append has lasted; 0: there is none."""
    consumers: Sequence[Standing]


class Lag(Census[LogStanding | None]):
    """Counts for all consumers of one database; ``None`` while it has none."""

    name = "lag"

    def __init__(
        self,
        database: Database,
        *,
        dead: float,
        session: Session | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(database, session=session, wanted=wanted)
        self._dead = dead
        """Seconds after which a silent node is dead."""

    async def _ask(self) -> tuple[LogStanding | None, Exception | None]:
        if not await self._session.fetchval(self._sql["consumed"], timeout=TIMEOUT):
            return None, None
        head, frontier, age = await self._session.fetchrow(self._sql["log"], timeout=TIMEOUT)
        rows = await self._session.fetch(self._sql["lag"], head, self._dead, timeout=TIMEOUT)
        return LogStanding(head, frontier, age, [Standing(*row) for row in rows]), None
