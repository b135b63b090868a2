"""RemoteTable: the store of one table of the user's, for a worker without a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from howdah.errors import ConfigError
from howdah.fleet.store import WAIT, Membership, RemoteStore
from howdah.job import Job
from howdah.table.handler import TableHandler
from howdah.table.options import TableOptions
from howdah.table.where import Where


class RemoteTable(RemoteStore):
    """Asks the hook before every claim, and keeps to what the table says of how much to do."""

    def __init__(self, member: Membership, options: TableOptions, handler: TableHandler, *, wait: float = WAIT) -> None:
        # a hook that is asked before every claim cannot be asked while a claim waits elsewhere
        super().__init__(member, options.name, wait=0.0 if handler.gated else wait, poll=options.poll)
        handler.settle()
        self._options = options
        self._handler = handler
        self._claimed = 0
        self._since = time.monotonic()
        self.spent: Callable[[], None] = lambda: None
        """Called when there is nothing more to claim, ever."""

    async def claim(self, most: int, room: Mapping[str, int]) -> list[Job]:
        most = self._left(most)
        if most <= 0:
            self.spent()
            return []
        if not await self._may_claim():
            return []
        jobs = await super().claim(most, room)
        self._claimed += len(jobs)
        return jobs

    async def _may_claim(self) -> bool:
        said = await self._handler.may_claim()
        if isinstance(said, Where):
            raise ConfigError(
                f"before_claim of table {self._name} returned a Where; without a database it can be True or False"
            )
        return said

    def _left(self, most: int) -> int:
        options = self._options
        if options.max_active_time and time.monotonic() - self._since >= options.max_active_time:
            return 0
        return min(most, options.total_jobs - self._claimed) if options.total_jobs else most
