"""How an attempt ends: what a handler may return, and what is told to the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

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


class Acks(list[Ack]):
    """Outcomes that were accepted. Those who only count them share the counting."""

    @classmethod
    def of(cls, acks: list[Ack]) -> Acks:
        """The same, ready to be counted."""
        return acks if isinstance(acks, cls) else cls(acks)

    @cached_property
    def took(self) -> Mapping[tuple[str, str, Outcome], list[int]]:
        """The microseconds of each, by queue, kind and outcome."""
        took: defaultdict[tuple[str, str, Outcome], list[int]] = defaultdict(list)
        for ack in self:
            job = ack.job
            took[job.queue, job.kind, ack.outcome].append(ack.took)
        return took
