"""Capabilities of an application without a database: the tasks and tables that a remote worker can run."""

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

TRANSACTIONAL = "it is transactional: its writes and its outcome are one commit"
BUDGET = "it has a budget: the cost of its rows is counted when they are claimed"
CONSUMER = "it is a consumer: its checkpoint is committed together with its writes"


@dataclass(frozen=True, slots=True)
class TableCapability:
    """A table whose rows a remote worker can run."""

    options: TableOptions
    handler: TableHandler


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Handlers of tasks and tables that need no database."""

    jobs: Mapping[str, Handler]
    tables: Mapping[str, TableCapability]

    @classmethod
    def of(cls, app: Howdah) -> Capabilities:
        """Return the capabilities of an application; log what is left out and why."""
        excluded = needs_database(app)
        for name, why in sorted(excluded.items()):
            log.warning("%s is not run here, since it needs a node with the database: %s", name, why)
        jobs = {kind: task.handler for kind, task in app.tasks.items() if kind not in excluded}
        tables = {}
        for name, table in app.tables.items():
            handler = table.source.handlers[name]
            if name not in excluded and isinstance(handler, TableHandler):
                tables[name] = TableCapability(table.options, handler)
        if not jobs and not tables:
            raise ConfigError("there is no task or table that can be run without a database")
        return cls(jobs, tables)


def needs_database(app: Howdah) -> dict[str, str]:
    """Return the tasks, tables and consumers that only a node with the database can run, each with the reason."""
    excluded = {kind: TRANSACTIONAL for kind, task in app.tasks.items() if task.handler.transactional}
    for name, table in app.tables.items():
        if table.options.transactional:
            excluded[name] = TRANSACTIONAL
        elif table.options.budget is not None:
            excluded[name] = BUDGET
    return excluded | dict.fromkeys(app.consumers, CONSUMER)
