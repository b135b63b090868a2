"""Pace: how much to claim beyond the free slots, so that short jobs never wait for a round trip."""

from __future__ import annotations

import time

SHORT = 20_000
"""Microseconds: jobs that take longer on average are never claimed ahead."""
AHEAD = 0.05
"""Seconds of work to hold ahead."""
MOST = 1000
STALE = 0.25
"""Seconds after which what was claimed ahead and not started is handed back."""


class Pace:
    """Learns from what finished lately. Nothing is claimed ahead until short jobs were seen."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._jobs = 0
        self._busy = 0
        self._ahead = 0

    def finished(self, jobs: int, took: int) -> None:
        """So many jobs took so many microseconds."""
        self._jobs += jobs
        self._busy += took

    def ahead(self) -> int:
        """How many jobs to hold beyond the free slots."""
        now = time.monotonic()
        passed = now - self._since
        if self._jobs >= 20 or passed > 1.0:
            short = self._jobs > 0 and self._busy < SHORT * self._jobs
            self._ahead = min(MOST, int(self._jobs / max(passed, 0.0005) * AHEAD)) if short else 0
            self._since, self._jobs, self._busy = now, 0, 0
        return self._ahead

    def stop(self) -> None:
        """Something claimed ahead had to be handed back: start over."""
        self._since, self._jobs, self._busy, self._ahead = time.monotonic(), 0, 0, 0
