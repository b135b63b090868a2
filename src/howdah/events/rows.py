"""Rows of the log's admin API: consumers, parked events, open appends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec


class ConsumerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer, or one partition of it."""

    consumer: str
    part: int
    partitions: int
    only: Sequence[str] | None
    types: Sequence[str] | None
    state: str
    """running, retrying, halted, paused, waiting (for the leader), unassigned (not declared), silent, reshaping."""
    node: int | None
    node_name: str | None
    assigned_at: datetime | None
    position: int
    lag: int
    """Positions behind the head, including gaps, events out of its scope and open appends."""
    lag_seconds: float | None
    """Age of the first event it has not handled; ``None``: it has handled all."""
    rate: float
    """Events per second lately."""
    handled: int
    failures: int
    error_position: int | None
    error: str | None
    """The class of the error."""
    message: str | None
    traceback: str | None
    error_at: datetime | None
    parked: int
    paused_by: str | None
    upto: int | None
    """Position where it waits for the other partitions while their number changes."""
    updated_at: datetime

    @property
    def name(self) -> str:
        """The displayed name."""
        return self.consumer if self.partitions == 1 else f"{self.consumer}#{self.part}"


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One parked event."""

    consumer: str
    part: int
    position: int
    stream: str | None
    """``None``: the event was deleted."""
    version: int | None
    type: str | None
    at: datetime | None
    data: Any
    error: str
    message: str
    traceback: str
    failures: int
    parked_at: datetime
    wanted_at: datetime | None
    """Time at which a retry was requested."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """An open append."""

    above: int
    """It may still commit positions above this."""
    pid: int | None
    application: str | None
    role: str | None
    state: str | None
    age: float
    query: str | None
    prepared: str | None
    """The name of a prepared transaction, which has no process."""


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the log."""

    head: int
    frontier: int
    exclusive: bool
    """True if appends are serialised."""
    holders: Sequence[Holder]
    """The open appends, the one that holds the frontier back first."""
    leader: int | None
    """The node that assigns consumers."""
    leader_name: str | None
    since: datetime | None
    system: int
    """The identifier of the PostgreSQL cluster."""
    timeline: int
    """Rises when a standby is promoted or a backup restored: events may be gone then, and their positions reused."""
    run: int | None
    """Changes with every start, crash and promotion of the server; ``None``: no node has looked at the log since."""
