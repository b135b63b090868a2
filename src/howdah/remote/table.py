"""Store of one table of the application, for a worker without a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from howdah.errors import ConfigError
from howdah.job import Job
from howdah.remote.store import LONG_POLL, RemoteRegistration, RemoteStore
from howdah.table.handler import TableHandler
from howdah.table.options import TableOptions
from howdah.table.statement import Where


class RemoteTableStore(RemoteStore):
    """Calls the ``before_claim`` hook and applies ``total_jobs`` and ``max_active_time``."""

    def __init__(
        self, registration: RemoteRegistration, options: TableOptions, handler: TableHandler, *, wait: float = LONG_POLL
    ) -> None:
        # A before_claim hook has to run before every claim, so claims cannot wait at the control plane.
        super().__init__(registration, options.name, wait=0.0 if handler.gated else wait, poll=options.poll)
        handler.settle()
        self._options = options
        self._handler = handler
        self._claimed = 0
        self._started_at = time.monotonic()
        self.on_exhausted: Callable[[], None] = lambda: None
        """Called once the table's limits allow no more claims."""

    async def claim(self, limit: int, room: Mapping[str, int]) -> list[Job]:
        limit = self._remaining(limit)
        if limit <= 0:
            self.on_exhausted()
            return []
        if not await self._may_claim():
            return []
        jobs = await super().claim(limit, room)
        self._claimed += len(jobs)
        return jobs

    async def _may_claim(self) -> bool:
        allowed = await self._handler.may_claim()
        if isinstance(allowed, Where):
            raise ConfigError(
                f"before_claim of table {self._name} returned a Where; without a database it can be True or False"
            )
        return allowed

    def _remaining(self, limit: int) -> int:
        options = self._options
        if options.max_active_time and time.monotonic() - self._started_at >= options.max_active_time:
            return 0
        return min(limit, options.total_jobs - self._claimed) if options.total_jobs else limit
