"""Retry policies: the delay before the next attempt of a job."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from howdah.errors import ConfigError, Poison, Retry
from howdah.job import Job
from howdah.loops import Outage

LONGEST_DELAY = 10 * 365 * 86400.0
"""Seconds: the longest delay of a retry, a snooze or a backoff. A longer one is cut to it."""
FIRST_INTERRUPTION_DELAY = 1.0
"""Seconds before the second attempt of a job whose transaction was interrupted; doubled each time."""
LONGEST_INTERRUPTION_DELAY = 300.0
"""Seconds between two such attempts at most."""
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
