"""Snapshot of queues, nodes, running jobs and consumers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A rate and its trend."""

    rate: float = 0.0
    """A second, lately."""
    trend: Sequence[float] = ()
    """A second, in steps of five seconds over the last minute, oldest first; shorter until so much has been seen."""


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, or one table of the application's."""

    name: str
    table: bool = False
    """True if it is a table that jobs of the application come from."""
    queued: int | None = 0
    """Due now; ``None``: a table that was not counted, since its app is not known here."""
    scheduled: int | None = 0
    """Not due yet, or waiting to retry."""
    running: int | None = 0
    oldest_age: float | None = None
    """Seconds the first in line has waited."""
    paused: bool = False
    paused_by: str | None = None
    done: Rates = Rates()
    failed: Rates = Rates()
    retried: Rates = Rates()


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One process that works here."""

    id: int
    name: str
    state: str
    version: str
    remote: bool
    """True if it works over HTTP."""
    deaf: bool
    """True if wake-ups do not arrive, and it polls."""
    slots: int
    running: int
    age: float
    """Seconds since it started."""
    beat_age: float
    """Seconds since its last heartbeat, by the server's clock."""


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job under lease."""

    id: int
    kind: str
    queue: str
    attempt: int
    node: int
    node_name: str | None
    seconds: float
    """Since it was claimed."""
    share: float | None
    """Progress from 0 to 1, if reported."""
    note: str | None


class ConsumerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of the event log, with the state of its worst partition."""

    name: str
    state: str
    """halted, paused, unassigned or running."""
    lag: int
    """Positions it has not passed yet."""
    lag_seconds: float
    """Age of the oldest event it has not seen."""
    parked: int


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that finished in one minute."""

    at: datetime
    done: int = 0
    failed: int = 0
    retried: int = 0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together."""

    queued: int
    scheduled: int
    running: int
    done: Rates
    failed: Rates
    retried: Rates


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of everything, by the server's clock."""

    at: datetime
    totals: Totals
    queues: Sequence[QueueSnapshot]
    nodes: Sequence[NodeSnapshot]
    running: Sequence[RunningJob]
    """The longest-running jobs, the oldest first."""
    consumers: Sequence[ConsumerSnapshot]
    minutes: Sequence[Minute]
    """The last hour, oldest first; the last one is incomplete."""
    late: Sequence[str] = ()
    """Sections that could not be read in time."""
