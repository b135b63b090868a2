"""One injected fault: its time, its targets, and the time limit for the recovery."""

from __future__ import annotations

from typing import Literal

import msgspec

Healing = Literal["jobs", "hands", "none"]
"""Sign of recovery: ``jobs`` of the one that was hurt run elsewhere; the ``hands`` hurt start something new."""


class Wound(msgspec.Struct, omit_defaults=True):
    """Moments are those of the monotonic clock."""

    fault: str
    did: str
    at: float
    healed: float | None = None
    """When what was done was undone; none: it was not, or need not be."""
    pids: list[int] = []
    shows: Healing = "none"
    sign: str = "start"
    """Sign of life of a process: start a job, ``record`` an outcome, ``beat``, or have ``heard`` a wake-up."""
    within: float = 0.0
    """Seconds for the recovery, from ``healed``, or from ``at`` where nothing was undone."""

    @property
    def since(self) -> float:
        """From when on recovery is expected."""
        return self.at if self.healed is None else self.healed
