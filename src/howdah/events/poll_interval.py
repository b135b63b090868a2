"""Adaptive poll interval of a consumer."""

from __future__ import annotations

import math
import time

MEMORY = 10.0


class PollInterval:
    """Short while events flow; doubles up to ``max_poll`` while none arrive.

    >>> pace = PollInterval(poll=1, max_poll=5, pause=0.2)
    >>> [pace.nothing(), pace.nothing(), pace.nothing(), pace.nothing(), pace.some(full=False), pace.some(full=True)]
    [1, 2, 4, 5, 1, 0.2]
    """

    def __init__(self, poll: float, max_poll: float, pause: float) -> None:
        self._poll = poll
        self._most = max(poll, max_poll)
        self._pause = pause
        self._next = poll

    def some(self, *, full: bool) -> float:
        """Events were found; ``full``: as many as fit, so there may be more."""
        self._next = self._poll
        return self._pause if full else self._poll

    def nothing(self) -> float:
        """No event was found."""
        now, self._next = self._next, min(self._most, self._next * 2)
        return now

    def woken(self) -> None:
        """A wake-up arrived."""
        self._next = self._poll


class Rate:
    """Events per second, averaged over about the last ten seconds."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at = time.monotonic()

    def add(self, events: int) -> float:
        """Add a number of events; return the current rate."""
        now = time.monotonic()
        passed, self._at = max(now - self._at, 1e-4), now
        fade = math.exp(-passed / MEMORY)
        self._rate = self._rate * fade + events / passed * (1 - fade)
        return self._rate
