"""Table: a table of the user's own as a work queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from howdah.errors import ConfigError
from howdah.handler import Executor
from howdah.job import current_job
from howdah.table.front import OpenTable, TableFront
from howdah.table.handler import TableHandler
from howdah.table.journal import Entry
from howdah.table.options import TableOptions

log = logging.getLogger("howdah")

H = TypeVar("H")


class Table:
    """One table to work on. Inserting rows stays the business of the application."""

    def __init__(self, options: TableOptions) -> None:
        self.options = options
        self._handler: TableHandler | None = None
        self._open: list[OpenTable] = []

    def __repr__(self) -> str:
        return f"Table({self.options.table!r})"

    @property
    def name(self) -> str:
        """What its jobs are called."""
        return self.options.name

    @overload
    def handler(self, target: H, /) -> H: ...

    @overload
    def handler(self, /, *, executor: Executor | None = None) -> Callable[[H], H]: ...

    def handler(self, target: Any = None, /, *, executor: Executor | None = None) -> Any:
        """Say what is done with a row: a class or object with ``execute`` and hooks, or a function of the record."""
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
            target.handler = self._handler  # type: ignore[attr-defined]  # where the other process looks for it
        return target

    @property
    def front(self) -> TableFront:
        """What a node opens."""
        if self._handler is None:
            raise ConfigError(f"table {self.name} has no handler; decorate a class or function with @….handler")
        return TableFront(self.options, self._handler, self._open)

    def log(self, key: str, *, command: Sequence[object] = ()) -> Entry:
        """Log a step of the attempt that is running here; it is written to ``execution_logs`` as it grows."""
        job = current_job()
        for opened in self._open:
            if opened.store.holds((job.token, job.id)):
                return opened.log(job, key, command)
        log.warning("job %s of table %s logs %r where no node is; it is not kept", job.id, self.name, key)
        return Entry(None, key, command)
