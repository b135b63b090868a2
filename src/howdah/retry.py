"""Retry policies: the delay before the next attempt of a job."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from howdah.errors import ERROR_CODES, ConfigError, Poison, Retry, code_of
from howdah.job import Job
from howdah.loops import Outage
from howdah.redact import LONGEST_MESSAGE, class_and_message, keep, message_of

LONGEST_DELAY = 10 * 365 * 86400.0
"""Seconds: the longest delay of a retry, a snooze or a backoff. A longer one is cut to it."""
FIRST_INTERRUPTION_DELAY = 1.0
"""Seconds before the second attempt of a job whose transaction was interrupted; doubled each time."""
LONGEST_INTERRUPTION_DELAY = 300.0
"""Seconds between two such attempts at most."""
UNDECIDED = 4
"""Rank of an error that says nothing about retries."""
MOST_WRAPPED = 100
"""Errors looked at inside of a group, and causes followed."""
MAX_INTERRUPTED_JOBS = 1000
"""Jobs whose interruptions are counted; beyond that, the one counted first is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Wait ``first`` seconds, then ``factor`` times as long each time, at most ``cap``; then spread by ``jitter``.

    >>> [Backoff().steady(n) for n in (1, 2, 3, 8, 9)]
    [30.0, 60.0, 120.0, 3600.0, 3600.0]
    """

    first: float = 30.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.2
    """The delay is multiplied by something between 1 - jitter and 1 + jitter, after the cap."""

    def __post_init__(self) -> None:
        for name in ("first", "cap"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if not self.factor >= 1:
            raise ConfigError(f"factor must be at least 1, got {self.factor!r}")
        if not 0 <= self.jitter < 1:
            raise ConfigError(f"jitter must be at least 0 and below 1, got {self.jitter!r}")

    def steady(self, attempt: int) -> float:
        """The delay after this many attempts, without jitter."""
        try:
            grown = self.first * self.factor ** min(max(attempt, 1) - 1, 64)
        except OverflowError:
            grown = self.cap
        return float(min(self.cap, grown, LONGEST_DELAY))

    def delay(self, attempt: int) -> float:
        """The delay after this many attempts."""
        spread = random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311
        return min(self.steady(attempt) * spread, LONGEST_DELAY)


Retries = Backoff | Mapping[type[BaseException], "Backoff | None"]
"""A backoff for every error, or one per class of error (``None``: never retry). The first match counts."""


def lineage(error: BaseException) -> list[str]:
    """The full names of an error's class and all it descends from: what travels between processes.

    >>> lineage(KeyError("x"))[:2]
    ['builtins.KeyError', 'builtins.LookupError']
    """
    return [_name(kind) for kind in type(error).__mro__]


class Decision(NamedTuple):
    """The treatment of a failure, and its name."""

    names: list[str]
    """Full names of all classes that retry rules are compared with."""
    by: BaseException
    """The error that decides: the raised one, or one inside its group, or its cause."""
    error: str
    message: str


def decision(error: BaseException) -> Decision:
    """Find the error that decides whether and when a job is retried.

    :class:`Poison`, :class:`Retry`, an error with a code or with ``retry_after`` decides also inside of an exception
    group, as a ``TaskGroup`` raises it, and as the cause of another error (``raise … from error``). The outermost one
    that says something counts; in a group, the most final one. A group is named for the error in it.

    >>> decision(ExceptionGroup("unhandled errors", [KeyError("a"), Poison("never")]))[2:]
    ('Poison', 'never (one of 2 errors: unhandled errors (2 sub-exceptions))')
    """
    leaves = _leaves(error)
    named, by = _decisive(error, leaves)
    # the rules are compared with all errors of a group, but with a cause only if it decides
    inner = [*leaves, by] if by is not error else leaves
    names = [name for each in (error, *inner) for name in lineage(each)]
    kind, message = class_and_message(named)
    if by is not named:
        cause, text = class_and_message(by)
        message = keep(f"{message} (caused by {cause}: {text})", LONGEST_MESSAGE)
    if len(leaves) > 1:
        message = keep(f"{message} (one of {len(leaves)} errors: {message_of(error)})", LONGEST_MESSAGE)
    return Decision(names, by, kind, message)


def _decisive(error: BaseException, leaves: Sequence[BaseException]) -> tuple[BaseException, BaseException]:
    """The error to be named, and the one that decides: itself, or one of its causes."""
    if not leaves or _rank(error) < UNDECIDED:
        return error, _through_causes(error)
    return min(((leaf, _through_causes(leaf)) for leaf in leaves), key=lambda pair: _rank(pair[1]))


def _through_causes(error: BaseException) -> BaseException:
    """The outermost error that says something among this one and its causes; the error itself if none does."""
    each: BaseException | None = error
    for _ in range(MOST_WRAPPED):
        if each is None:
            break
        leaves = _leaves(each)
        decides = min((each, *leaves), key=_rank)
        if _rank(decides) < UNDECIDED:
            return decides
        each = vars(BaseException)["__cause__"].__get__(each)  # not by its own code, which may raise
    return error


def _rank(error: BaseException) -> int:
    """Rank of an error: the smaller, the more final."""
    if issubclass(type(error), Poison):
        return 0
    if code := code_of(error):
        return 1 if ERROR_CODES[code] == 0 else 2
    return UNDECIDED if retry_after(error) is None else 3


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group, and in the groups inside of it; none if it is no group."""
    if not issubclass(type(error), BaseExceptionGroup):
        return []
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting and len(leaves) < MOST_WRAPPED:
        each = waiting.pop(0)
        if issubclass(type(each), BaseExceptionGroup):
            waiting = [*vars(BaseExceptionGroup)["exceptions"].__get__(each), *waiting]
        else:
            leaves.append(each)
    return leaves


def retry_after(error: BaseException) -> float | None:
    """The delay an error asks for by itself, in seconds."""
    return seconds(attribute(error, "retry_after"))


def seconds(asked: Any, longest: float = LONGEST_DELAY) -> float | None:
    """A number of seconds as it can be stored, at most ``longest``; ``None`` for what is no such number.

    >>> seconds(2), seconds(1e300), seconds(10**400), seconds(-1), seconds(float("nan")), seconds("soon"), seconds(True)
    (2.0, 315360000.0, 315360000.0, None, None, None, None)
    """
    kind = type(asked)  # not isinstance: that asks the value itself, whose code may raise
    if issubclass(kind, bool) or not issubclass(kind, int | float | Decimal):
        return None
    try:
        found = float(min(asked, longest)) if 0 <= asked < float("inf") else None
    except Exception:  # a decimal that is not a number, or a number with code of its own
        return None
    return found if found is not None and 0 <= found <= longest else None


def attribute(error: BaseException, name: str) -> Any:
    """An attribute of an error; ``None`` if it has none, or raises when asked for it."""
    try:
        return getattr(error, name, None)
    except Exception:
        return None


def delay_after(names: Sequence[str], asked: float | None, attempt: int, retries: Retries) -> float | None:
    """Seconds before the next attempt after an error of this lineage, or ``None`` when there must be none."""
    if _name(Poison) in names:
        return None
    if _name(Retry) in names and asked is not None:
        return asked
    policy: Backoff | None = Backoff()
    if isinstance(retries, Backoff):
        policy = retries
    else:
        for kind, chosen in retries.items():
            if _name(kind) in names:
                policy = chosen
                break
    if policy is None:
        return None
    if asked is not None:
        return asked
    delay = seconds(policy.delay(attempt))
    return Backoff().delay(attempt) if delay is None else delay


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class InterruptionBackoff:
    """Growing delay of jobs whose transaction was interrupted through no fault of their handlers.

    The server went away, has no room left, or accepts no writes. No attempt is charged for that, so only the growing
    delay keeps a job that is interrupted every time from running without pause.
    """

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self._outage = Outage("transaction")

    def delay(self, job: Job, error: BaseException) -> float:
        """Count an interruption; returns the seconds before the next attempt."""
        self._outage.fail(error)
        count = self._counts.pop(job.id, 0) + 1
        self._counts[job.id] = count
        if len(self._counts) > MAX_INTERRUPTED_JOBS:
            del self._counts[next(iter(self._counts))]
        delay = float(min(LONGEST_INTERRUPTION_DELAY, FIRST_INTERRUPTION_DELAY * 2 ** min(count - 1, 20)))
        return delay * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self, job: Job) -> None:
        """Forget the interruptions of a job whose transaction was carried out."""
        self._outage.heal()
        if self._counts:
            self._counts.pop(job.id, None)
