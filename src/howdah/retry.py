"""When to try again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from howdah.errors import ConfigError, Poison, Retry


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
        grown = self.first * self.factor ** min(max(attempt, 1) - 1, 64)
        return float(min(self.cap, grown))

    def delay(self, attempt: int) -> float:
        """The delay after this many attempts."""
        return self.steady(attempt) * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311


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
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and not isinstance(asked, bool) and 0 <= asked < float("inf"):
        return float(asked)
    return None


def delay_after(names: Sequence[str], asked: float | None, attempt: int, retries: Retries) -> float | None:
    """Seconds before the next attempt after an error of this lineage, or ``None`` when there must be none."""
    if _name(Poison) in names:
        return None
    if _name(Retry) in names and asked is not None:  # said in so many words
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
    return asked if asked is not None else policy.delay(attempt)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
