"""One injected fault: its time, its targets, and the time limit for the recovery."""

from __future__ import annotations

from typing import Literal

import msgspec

RecoverySign = Literal["jobs", "processes", "none"]
"""Sign of recovery: ``jobs`` of the affected process run elsewhere; the affected ``processes`` start something new."""


class Injection(msgspec.Struct, omit_defaults=True):
    """Moments are those of the monotonic clock."""

    fault: str
    did: str
    at: float
    undone: float | None = None
    """When what was done was undone; none: it was not, or need not be."""
    pids: list[int] = []
    shows: RecoverySign = "none"
    sign: str = "start"
    """Sign of life of a process: start a job, ``record`` an outcome, ``beat``, or have ``heard`` a wake-up."""
    within: float = 0.0
    """Seconds for the recovery, from ``undone``, or from ``at`` where nothing was undone."""

    @property
    def since(self) -> float:
        """From when on recovery is expected."""
        return self.at if self.undone is None else self.undone
