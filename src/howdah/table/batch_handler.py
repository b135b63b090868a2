"""The handler of a table that is called once with many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from howdah.batch_handler import check_batch, keep_secrets
from howdah.errors import ConfigError
from howdah.handler import Executor
from howdah.job import Job
from howdah.retry import Retries
from howdah.store import Transaction
from howdah.table.handler import TableHandler, run_hook
from howdah.table.record import Record


class TableBatchHandler(TableHandler):
    """The handler of a table with ``batch``: its ``execute`` takes a list of records."""

    def __init__(
        self,
        kind: str,
        target: Any,
        record: Record,
        *,
        batch: int,
        within: float = 0.0,
        executor: Executor | None = None,
        transactional: bool = False,
        retries: Retries,
    ) -> None:
        super().__init__(kind, target, record, executor=executor, transactional=transactional, retries=retries)
        if self.executor == "process":
            raise ConfigError(f"table {kind} has a batch, so its handler cannot have executor='process'; leave it out")
        self.batch, self.within = check_batch(f"table {kind}", batch, within)

    @property
    def plain(self) -> bool:  # type: ignore[override]
        return False

    @property
    def one_by_one(self) -> bool:
        return False

    def read(self, job: Job) -> Any:
        return self.record.read(job)

    def keep_secrets(self, jobs: Sequence[Job]) -> None:
        keep_secrets(jobs, self.record.secrets)

    def call_batch(self, jobs: Sequence[Job], items: Sequence[Any], tx: Transaction | None = None) -> Any:
        named = {self._tx: tx} if self._tx else {}
        if not self._has["before_execute"]:
            return self._execute(items, **named)
        if self._is_async:
            return self._prepared_batch(items, named)
        for record in items:
            self._wait_for(self._target.before_execute(record))
        return self._execute(items, **named)

    async def _prepared_batch(self, records: Sequence[Any], named: Mapping[str, Any]) -> Any:
        for record in records:
            await run_hook(self._target.before_execute, record)
        return await self._execute(records, **named)
