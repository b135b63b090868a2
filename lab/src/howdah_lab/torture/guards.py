"""Guards: the mechanisms behind each guarantee, switched off one at a time as negative controls of the checker."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from howdah.postgres import settings

CLOCK = "HOWDAH_TORTURE_CLOCK"
"""The environment variable with the seconds by which the clock of a worker is wrong."""
WITHOUT = "HOWDAH_TORTURE_WITHOUT"
"""Environment variable with the guard that is switched off in a worker."""

GUARDS = {
    "fence": "outcomes are accepted from every node, also from one whose lease has expired",
    "reset": "leases of dead nodes are not reset",
    "transaction": "effects are committed apart from the completion",
    "frontier": "consumers read every event that they see, also before older ones are committed",
    "key": "a unique key is not unique",
    "promote": "due jobs are not promoted",
    "poll": "nodes do not poll, and do not test whether notifications arrive",
    "process": "handlers that take their process with them run in that of the worker",
    "timeout": "workers wait for an answer as long as it takes",
    "sequence": "tokens of leases and ids of nodes come from sequences, which a crash or a failover sets back",
    "run": "consumers keep what a server showed before it crashed or was replaced",
    "flush": "commits are acknowledged before they are on the disk, and before the standby has them",
    "cleaning": "texts go to the database as handlers give them, and what it refuses is sent again as it is",
    "contact": "expired leases are reset at once after an outage, which kept their nodes from renewing them",
    "declaration": "nodes fire, consume and reset whether or not what they declare is current",
}
"""Guards that can be switched off, and the effect of each."""
IN_DATABASE = frozenset({"fence", "reset", "frontier", "key", "sequence", "run", "flush", "contact", "declaration"})
"""Guards that are functions or settings of the database, replaced by sql/without_*.sql."""

OF_PROGRESS = frozenset({"reset", "promote", "poll", "process", "timeout", "cleaning"})
"""Guards without which work stands still. Without any other, something must be lost, doubled or out of order."""


def off(guard: str) -> bool:
    """Return whether this guard is switched off in this process."""
    return os.environ.get(WITHOUT) == guard


AS_IF_ASKED = "select 'client' where $1::text is not null"
"""Act as if the DSN had set synchronous_commit to off, which Howdah's connections respect."""


@contextmanager
def asynchronous_commits(without: str | None) -> Iterator[None]:
    """Let the connections of this process commit as the database says, while ``flush`` is switched off."""
    was = settings.SOURCE
    if without == "flush":
        settings.SOURCE = AS_IF_ASKED
    try:
        yield
    finally:
        settings.SOURCE = was


def apply() -> None:
    """Switch off in this process what is to be switched off, and set its clock."""
    if ahead := float(os.environ.get(CLOCK, "0")):
        real = time.time
        time.time = lambda: real() + ahead
    if off("fence"):
        from howdah.jobs import store
        from howdah.worker.worker import Worker

        store.IDLE = 1000.0  # the server would end its transaction before it can say anything
        Worker.lose = Worker.lose_jobs = Worker.stop_unrenewed = lambda *_: None  # type: ignore[method-assign,assignment]
    if off("flush"):
        settings.SOURCE = AS_IF_ASKED
    if off("sequence"):
        from howdah.node import registry

        # the first id that is free, as far as the server remembers
        registry.new_node = itertools.count(1).__next__
    if off("promote"):
        from howdah.jobs.claim import Claimer

        Claimer._promote = _nothing  # type: ignore[method-assign,assignment]
    if off("cleaning"):
        from howdah import redact
        from howdah.jobs import ack
        from howdah.table import rejected

        redact.storable = lambda text: text
        ack.is_rejection = lambda _: False  # type: ignore[assignment]
        rejected.split.__defaults__ = (lambda _: False,)
    if off("declaration"):
        from howdah.jobs.schedule import Schedule
        from howdah.table.declaration import Declarations

        Schedule.declaration = property(lambda _: "any")  # type: ignore[assignment,method-assign]
        Declarations.stalls = _own_stall  # type: ignore[method-assign,assignment]
    if off("poll"):
        from howdah.postgres import listen

        listen.PROBE_INTERVAL = 1000.0
    if off("timeout"):
        from howdah.postgres import pool
        from howdah.postgres.database import Session

        pool.CHECK_INTERVAL = 1000.0
        Session.fetch = _patient(Session.fetch)  # type: ignore[method-assign]


def _patient(fetch: Any) -> Any:
    async def patiently(session: Any, statement: str, *args: Any, timeout: float | None = None) -> Any:
        return await fetch(session, statement, *args, timeout=1000.0)

    return patiently


async def _own_stall(declarations: Any) -> tuple[float, list[str], list[float]]:
    return declarations._plan.options.stalled_after, [], []


async def _nothing(*_: object) -> None:
    pass
