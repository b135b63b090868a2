"""A user's table as a work queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from howdah.errors import ConfigError
from howdah.handler import Executor
from howdah.job import current_job
from howdah.table.execution_log import ExecutionLogEntry
from howdah.table.handler import TableHandler
from howdah.table.options import TableOptions
from howdah.table.source import OpenTableSource, TableSource

log = logging.getLogger("howdah")

H = TypeVar("H")


class Table:
    """One table to work on. The application inserts the rows."""

    def __init__(self, options: TableOptions) -> None:
        self.options = options
        self._handler: TableHandler | None = None
        self._open: list[OpenTableSource] = []

    def __repr__(self) -> str:
        return f"Table({self.options.table!r})"

    @property
    def name(self) -> str:
        """The kind of its jobs."""
        return self.options.name

    @overload
    def handler(self, target: H, /) -> H: ...

    @overload
    def handler(self, /, *, executor: Executor | None = None) -> Callable[[H], H]: ...

    def handler(self, target: Any = None, /, *, executor: Executor | None = None) -> Any:
        """Register the handler: a class or object with ``execute`` and hooks, or a function of the record."""
        if target is None:
            return lambda decorated: self._register(decorated, executor)
        return self._register(target, executor)

    def _register(self, target: H, executor: Executor | None) -> H:
        if self._handler is not None:
            raise ConfigError(f"table {self.name} has two handlers; one is enough")
        options = self.options
        self._handler = TableHandler(
            options.name,
            target,
            options.reader,
            executor=executor,
            transactional=options.transactional,
            retries=options.retries,
        )
        if self._handler.executor == "process":
            target.handler = self._handler  # type: ignore[attr-defined]  # where the other process finds it
        return target

    @property
    def source(self) -> TableSource:
        """The source of work that a node opens."""
        if self._handler is None:
            raise ConfigError(f"table {self.name} has no handler; decorate a class or function with @….handler")
        return TableSource(self.options, self._handler, self._open)

    def log(self, key: str, *, command: Sequence[object] = ()) -> ExecutionLogEntry:
        """Log a step of the attempt that is running here; it is written to ``execution_logs`` as it grows."""
        job = current_job()
        for opened in self._open:
            if opened.store.holds((job.token, job.id)):
                return opened.log(job, key, command)
        log.warning("job %s of table %s logs %r outside a node; the entry is not kept", job.id, self.name, key)
        return ExecutionLogEntry(None, key, command)
