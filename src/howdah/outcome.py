"""How an attempt ends: what a handler may return, and what is told to the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from howdah.errors import ArgumentError
from howdah.job import Job
from howdah.retry import seconds
from howdah.scrub import LONGEST_MESSAGE, keep, message_of


@dataclass(frozen=True, slots=True)
class Snooze:
    """Return it from a handler: run again after ``seconds``, at most ten years; no attempt is used."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """Return it from a handler: this job is no longer wanted."""

    reason: str = ""


def clean(value: Any) -> Any:
    """What a handler returned, with the delay of a :class:`Snooze` and the reason of a :class:`Cancel` storable.

    Raises :class:`ArgumentError` for a delay that is no number of seconds. Anything else is returned as it is.

    >>> clean(Snooze(10**30)), clean(Cancel("not\\0wanted")), clean(17)
    (Snooze(seconds=315360000.0), Cancel(reason='not\\\\0wanted'), 17)
    """
    kind = type(value)  # not isinstance: that asks the value itself, whose code may raise
    if issubclass(kind, Snooze):
        delay = seconds(value.seconds)
        if delay is None:
            raise ArgumentError(f"cannot snooze for {keep(repr(value.seconds), 100)} seconds")
        return Snooze(delay)
    if issubclass(kind, Cancel):
        return Cancel("" if value.reason is None else keep(message_of(value.reason), LONGEST_MESSAGE))
    return value


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
    postponed: bool = False
    """Whether the store could not record it now, since a transaction of the user's has locked its row."""
    hold: float | None = None
    """Seconds the fleet shall leave this kind of job alone."""
    unsure: bool = False
    """The store was told before and did not answer: it may already be recorded."""


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
