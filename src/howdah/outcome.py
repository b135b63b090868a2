"""How an attempt ends: what a handler may return, and what is told to the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from howdah.job import Job


@dataclass(frozen=True, slots=True)
class Snooze:
    """Return it from a handler: run again after ``seconds``; no attempt is used."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """Return it from a handler: this job is no longer wanted."""

    reason: str = ""


class Outcome(StrEnum):
    """How one attempt ended, as metrics name it."""

    OK = "ok"
    RETRY = "retry"
    FAILED = "failed"
    POISON = "poison"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"
    RELEASED = "released"
    LOST = "lost"


class Ack(msgspec.Struct, gc=False):
    """What a worker tells the store about one attempt."""

    job: Job
    outcome: Outcome
    took: int
    """Microseconds."""
    result: bytes | None = None
    delay: float = 0.0
    """Seconds until the next attempt, for retry and snooze."""
    error: str | None = None
    """The class of the error."""
    message: str | None = None
    traceback: str | None = None
    recorded: bool = False
    """The store already knows: it was committed with the handler's own transaction."""
    hold: float | None = None
    """Seconds the fleet shall leave this kind of job alone."""
