"""When to try again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from howdah.errors import ConfigError, Poison


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


def delay_after(error: BaseException, attempt: int, retries: Retries) -> float | None:
    """Seconds to wait before the next attempt, or ``None`` when there must be none."""
    if isinstance(error, Poison):
        return None
    policy: Backoff | None = Backoff()
    if isinstance(retries, Backoff):
        policy = retries
    else:
        for kind, chosen in retries.items():
            if isinstance(error, kind):
                policy = chosen
                break
    if policy is None:
        return None
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and not isinstance(asked, bool) and 0 <= asked < float("inf"):
        return float(asked)
    return policy.delay(attempt)
