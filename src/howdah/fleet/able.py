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

TRANSACTIONAL = "it is transactional: what it writes and its outcome are one commit"
BUDGET = "it has a budget: what its rows cost is counted where they are claimed"
CONSUMER = "it is a consumer: its checkpoint moves with what it writes"


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
        apart = needs_database(app)
        for name, why in sorted(apart.items()):
            log.warning("%s is left alone, since it needs a node with the database: %s", name, why)
        jobs = {kind: task.handler for kind, task in app.tasks.items() if kind not in apart}
        tables = {}
        for name, table in app.tables.items():
            handler = table.front.handlers[name]
            if name not in apart and isinstance(handler, TableHandler):
                tables[name] = AbleTable(table.options, handler)
        if not jobs and not tables:
            raise ConfigError("there is no task or table that can be run without a database")
        return cls(jobs, tables)


def needs_database(app: Howdah) -> dict[str, str]:
    """Tasks, tables and consumers that only a node with the database can run, each with the reason."""
    apart = {kind: TRANSACTIONAL for kind, task in app.tasks.items() if task.handler.transactional}
    for name, table in app.tables.items():
        if table.options.transactional:
            apart[name] = TRANSACTIONAL
        elif table.options.budget is not None:
            apart[name] = BUDGET
    return apart | dict.fromkeys(app.consumers, CONSUMER)
