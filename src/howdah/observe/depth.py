"""Depth: how much waits in every queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from howdah.observe.census import TIMEOUT, Census
from howdah.pg.database import Database, Session


class Queue(NamedTuple):
    """What one queue holds."""

    name: str
    queued: int
    scheduled: int
    running: int
    oldest: float | None
    """Seconds the oldest waiting job could have been running; ``None``: nothing waits."""


Counting = tuple[str, str, Sequence[Any]]
"""How a table of the application's is counted: its name, the statement and its values. The statement answers with
one row, which begins with what is due, what waits but is not due yet, what is worked on, and the oldest."""


class Depth(Census[list[Queue]]):
    """Counts the queues of one database, and the tables of its application."""

    name = "depth"

    def __init__(
        self,
        database: Database,
        *,
        session: Session | None = None,
        wanted: Callable[[], bool] = lambda: True,
        tables: Callable[[], Sequence[Counting]] = tuple,
    ) -> None:
        super().__init__(database, session=session, wanted=wanted)
        self._tables = tables

    @property
    def queues(self) -> list[Queue]:
        """The last count; empty when it is too old to be shown. Safe to call from any thread."""
        return self.latest or []

    async def _ask(self) -> tuple[list[Queue], Exception | None]:
        queues = [Queue(*row) for row in await self._session.fetch(self._sql["depth"], timeout=TIMEOUT)]
        failure: Exception | None = None
        for name, statement, values in self._tables():
            try:
                row = await self._session.fetchrow(statement, *values, timeout=TIMEOUT)
                queues.append(Queue(name, *row[:4]))
            except Exception as error:  # a table that is locked or gone must not hide the others
                failure = failure or error
        return queues, failure
