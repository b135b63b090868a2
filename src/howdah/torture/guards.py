"""Guards: what keeps a promise, switched off one at a time. A checker that finds nothing then is worth nothing."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from howdah.pg import settings

CLOCK = "HOWDAH_TORTURE_CLOCK"
"""The environment variable with the seconds by which the clock of a worker is wrong."""
WITHOUT = "HOWDAH_TORTURE_WITHOUT"
"""The environment variable with the guard a worker does without."""

GUARDS = {
    "fence": "outcomes are taken from whoever says them, also from a node whose lease is over",
    "reset": "nobody takes back the leases of nodes that are gone",
    "transaction": "effects are committed apart from the completion",
    "frontier": "consumers read every event that they see, also before older ones are committed",
    "key": "a unique key is not unique",
    "promote": "nobody looks for jobs that have come due",
    "poll": "nobody looks without being woken, and nobody checks whether wake-ups arrive",
    "process": "handlers that take their process with them run in that of the worker",
    "timeout": "workers wait for an answer as long as it takes",
    "sequence": "tokens of leases and ids of nodes come from sequences, which a crash or a failover sets back",
    "run": "consumers keep what a server showed before it crashed or was replaced",
    "flush": "commits are acknowledged before they are on the disk, and before the standby has them",
    "cleaning": "texts go to the database as handlers give them, and what it refuses is sent again as it is",
    "declaration": "nodes fire, consume and reset whether or not what they declare is current",
}
"""What can be switched off, and what is so then."""
IN_DATABASE = frozenset({"fence", "reset", "frontier", "key", "sequence", "run", "flush", "declaration"})
"""Those that are functions or settings of the database, replaced by sql/without_*.sql."""

OF_PROGRESS = frozenset({"reset", "promote", "poll", "process", "timeout", "cleaning"})
"""Guards without which work stands still. Without any other, something must be lost, doubled or out of order."""


def off(guard: str) -> bool:
    """Whether this process does without it."""
    return os.environ.get(WITHOUT) == guard


AS_IF_ASKED = "select 'client' where $1::text is not null"
"""As if the DSN itself had asked for commits that nobody waits for, which Howdah's connections respect."""


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
        from howdah.work.worker import Worker

        store.IDLE = 1000.0  # the server would end its transaction before it can say anything
        Worker.lose = Worker.lose_jobs = lambda *_: None  # type: ignore[method-assign,assignment]
    if off("flush"):
        settings.SOURCE = AS_IF_ASKED
    if off("sequence"):
        from howdah.node import registry

        # the first id that is free, as far as the server remembers
        registry.new_node = itertools.count(1).__next__  # type: ignore[attr-defined]
    if off("promote"):
        from howdah.jobs.store import JobStore

        JobStore._promote = _nothing  # type: ignore[method-assign,assignment]
    if off("cleaning"):
        from howdah import scrub
        from howdah.jobs import recorder
        from howdah.table import refusal

        scrub.storable = lambda text: text
        recorder.is_refusal = lambda _: False  # type: ignore[attr-defined,assignment]
        refusal.split.__defaults__ = (lambda _: False,)
    if off("declaration"):
        from howdah.jobs.schedule import Schedule
        from howdah.table.declaration import Declarations

        Schedule.declaration = property(lambda _: "any")  # type: ignore[assignment,method-assign]
        Declarations.stalls = _own_stall  # type: ignore[method-assign,assignment]
    if off("poll"):
        from howdah.pg import listen

        listen.PROBE_EVERY = 1000.0
    if off("timeout"):
        from howdah.pg import watch
        from howdah.pg.database import Session

        watch.EVERY = 1000.0
        Session.fetch = _patient(Session.fetch)  # type: ignore[method-assign]


def _patient(fetch: Any) -> Any:
    async def patiently(session: Any, statement: str, *args: Any, timeout: float | None = None) -> Any:
        return await fetch(session, statement, *args, timeout=1000.0)

    return patiently


async def _own_stall(declarations: Any) -> tuple[float, list[str], list[float]]:
    return declarations._plan.options.stalled_after, [], []


async def _nothing(*_: object) -> None:
    pass
