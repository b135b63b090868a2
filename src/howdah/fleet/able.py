"""Able: what of an application can be run without a database."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from howdah.app import Howdah
from howdah.errors import ConfigError
from howdah.handler import Handler
from howdah.table.handler import TableHandler
from howdah.table.options import TableOptions

log = logging.getLogger("howdah")


@dataclass(frozen=True, slots=True)
class AbleTable:
    """A table whose rows can be worked on from afar."""

    options: TableOptions
    handler: TableHandler


@dataclass(frozen=True, slots=True)
class Able:
    """Tasks and tables; what cannot be run is named once, in the log."""

    jobs: Mapping[str, Handler]
    tables: Mapping[str, AbleTable]

    @classmethod
    def of(cls, app: Howdah) -> Able:
        """Look at an application."""
        jobs = {kind: task.handler for kind, task in app.tasks.items() if not task.handler.transactional}
        tables = {}
        for name, table in app.tables.items():
            handler = table.front.handlers[name]
            # what a budget costs is known to the database only
            if isinstance(handler, TableHandler) and not handler.transactional and table.options.budget is None:
                tables[name] = AbleTable(table.options, handler)
        left = [*(set(app.tasks) - set(jobs)), *(set(app.tables) - set(tables)), *app.consumers]
        if left:
            log.warning(
                "left alone, since they need the database (transactions, budgets, consumers): %s",
                ", ".join(sorted(left)),
            )
        if not jobs and not tables:
            raise ConfigError("there is no task or table that can be run without a database")
        return cls(jobs, tables)
