"""Share: a consumer, or one part of it, as its owner holds it."""

from __future__ import annotations

import msgspec


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What the database says a node owns."""

    consumer: str
    part: int
    partitions: int
    epoch: int
    """Rises whenever anything about it is changed from outside: the fence of its batches."""
    run: int
    """The run of the server that said so. Only what was read in this run may move the checkpoint."""
    position: int
    upto: int | None
    """Not beyond this, while the partitions change."""
    paused: bool
    halted: bool
    failures: int
    wanted: bool
    """Whether parked events are to be tried again."""

    @property
    def key(self) -> tuple[str, int]:
        return self.consumer, self.part

    @property
    def name(self) -> str:
        """What people call it."""
        return self.consumer if self.partitions == 1 else f"{self.consumer}#{self.part}"

    @property
    def idle(self) -> bool:
        """Whether its owner is to leave it alone."""
        return self.paused or self.halted
