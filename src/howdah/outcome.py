"""Outcomes of attempts: the values a handler may return, and the acks that a store records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from howdah.arguments import encode
from howdah.errors import ArgumentError, code_of
from howdah.job import Job
from howdah.redact import LONGEST_MESSAGE, class_and_message, keep, message_of, traceback_of
from howdah.retry import attribute, decision, retry_after, seconds

LONGEST_HOLD = 3600.0
"""Seconds that a handler can put a kind on hold at most."""


def result_of(value: Any, largest: int) -> tuple[bytes | None, str | None]:
    """Encode the result of a handler as JSON; or return None and the reason why it cannot be stored.

    Never raises, even if code of the value does: the work is done and must not be repeated because of its result.

    >>> result_of([1], 100), result_of({"a": object()}, 100)
    ((b'[1]', None), (None, 'the result cannot be sent as JSON: a object has no JSON form'))
    """
    try:
        return encode(value, what="the result", largest=largest), None
    except BaseException as error:
        return None, keep(message_of(error) or class_and_message(error)[0], LONGEST_MESSAGE)


@dataclass(frozen=True, slots=True)
class Snooze:
    """Return it from a handler to run the job again after ``seconds``, at most ten years, without using an attempt."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """Return it from a handler to cancel the job."""

    reason: str = ""


def clean(value: Any) -> Any:
    """Make the delay of a :class:`Snooze` and the reason of a :class:`Cancel` storable.

    Raises :class:`ArgumentError` if the delay is not a number of seconds. Other values are returned unchanged.

    >>> clean(Snooze(10**30)), clean(Cancel("not\\0wanted")), clean(17)
    (Snooze(seconds=315360000.0), Cancel(reason='not\\\\0wanted'), 17)
    """
    kind = type(value)  # not isinstance: it runs code of the value, which may raise
    if issubclass(kind, Snooze):
        delay = seconds(value.seconds)
        if delay is None:
            raise ArgumentError(f"cannot snooze for {keep(repr(value.seconds), 100)} seconds")
        return Snooze(delay)
    if issubclass(kind, Cancel):
        return Cancel("" if value.reason is None else keep(message_of(value.reason), LONGEST_MESSAGE))
    return value


class Outcome(StrEnum):
    """Outcome of one attempt; metrics use these names."""

    OK = "ok"
    RETRY = "retry"
    FAILED = "failed"
    POISON = "poison"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"
    RELEASED = "released"
    LOST = "lost"


class Ack(msgspec.Struct, gc=False):
    """The outcome of one attempt, as a worker sends it to the store."""

    job: Job
    outcome: Outcome
    took: int
    """Duration in microseconds."""
    result: bytes | None = None
    delay: float = 0.0
    """Seconds until the next attempt, for retry and snooze."""
    error: str | None = None
    """Class name of the error."""
    message: str | None = None
    traceback: str | None = None
    recorded: bool = False
    """True if it is already recorded: it was committed with the handler's own transaction."""
    postponed: bool = False
    """True if the store could not record it now, because a transaction of the user has locked its row."""
    hold: float | None = None
    """Seconds for which no node claims this kind of job."""
    unsure: bool = False
    """True if it was sent before without a reply, so that it may already be recorded."""
    exception: BaseException | None = None
    """The error itself, for the log; not sent, and dropped when many outcomes wait: it keeps its frames alive."""


class Acks(list[Ack]):
    """Accepted outcomes, with counts computed once for all listeners."""

    @classmethod
    def of(cls, acks: list[Ack]) -> Acks:
        """Return the list as :class:`Acks`."""
        return acks if isinstance(acks, cls) else cls(acks)

    @cached_property
    def took(self) -> Mapping[tuple[str, str, Outcome], list[int]]:
        """Durations in microseconds by queue, kind and outcome."""
        took: defaultdict[tuple[str, str, Outcome], list[int]] = defaultdict(list)
        for ack in self:
            job = ack.job
            took[job.queue, job.kind, ack.outcome].append(ack.took)
        return took


class FailureReport(msgspec.Struct, kw_only=True):
    """The description of a failure, as processes and machines send it. The node decides whether and when to retry."""

    error: str
    """The class of the error: its code if it has one, else the name of its type."""
    message: str
    traceback: str
    lineage: list[str]
    retry_after: float | None = None
    code: str | None = None
    hold: bool | float = False
    """Put this kind of job on hold on all nodes: until the next attempt, or for this many seconds."""

    @classmethod
    def of(cls, error: BaseException) -> FailureReport:
        """Describe an error."""
        found = decision(error)
        code = code_of(found.by)
        return cls(
            error=code or found.error,
            message=found.message,
            traceback=traceback_of(error),
            lineage=found.names,
            retry_after=retry_after(found.by),
            code=code,
            hold=_hold(attribute(found.by, "hold")) if code else False,
        )


def _hold(asked: object) -> bool | float:
    """Return a hold that can be stored; a value that is neither a bool nor a number of seconds means no hold."""
    # not isinstance: it can run code of the value, which may raise
    return bool(asked) if type(asked) is bool else seconds(asked, LONGEST_HOLD) or False
