"""A partition of a consumer, as its owner read it."""

from __future__ import annotations

import msgspec


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition that a node owns."""

    consumer: str
    part: int
    partitions: int
    epoch: int
    """Fencing token of its batches: rises whenever the partition is changed from outside."""
    run: int
    """The run of the server it was read in. Only events read in this run may move the checkpoint."""
    position: int
    upto: int | None
    """Last position to consume while the number of partitions changes."""
    paused: bool
    halted: bool
    failures: int
    wanted: bool
    """True if parked events are to be retried."""

    @property
    def key(self) -> tuple[str, int]:
        return self.consumer, self.part

    @property
    def name(self) -> str:
        """The displayed name."""
        return self.consumer if self.partitions == 1 else f"{self.consumer}#{self.part}"

    @property
    def idle(self) -> bool:
        """True if its owner must not consume it."""
        return self.paused or self.halted
