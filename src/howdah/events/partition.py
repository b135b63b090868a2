"""A partition of a consumer, as its owner read it, and its stored checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from howdah.errors import LeaseLost


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
    def version(self) -> tuple[int, int]:
        """Changes whenever its owner must stop consuming it and start again."""
        return self.epoch, self.run

    @property
    def name(self) -> str:
        """The displayed name."""
        return self.consumer if self.partitions == 1 else f"{self.consumer}#{self.part}"

    @property
    def idle(self) -> bool:
        """True if its owner must not consume it."""
        return self.paused or self.halted


def lost(partition: Partition) -> LeaseLost:
    """Return the error for a partition that another node owns now."""
    return LeaseLost(f"consumer {partition.name} is no longer ours, or was moved")


RESTARTED = "the server was restarted or replaced"
"""Why a partition consumer ends when the server is in another run: only the stored checkpoint is valid then."""


class CheckpointRejected(Exception):
    """A partition is no longer consumed here; the message gives the reason."""


class Checkpoint:
    """The stored position of a partition. It moves only in the partition's run of the server and under its epoch."""

    def __init__(self, sql: Mapping[str, str], partition: Partition, node: int) -> None:
        self._sql = sql
        self._partition = partition
        self._node = node
        self._rate = Rate()
        self.position = partition.position
        self.moved_at = time.monotonic()

    async def move(self, conn: Any, to: int, events: int) -> None:
        """Move the checkpoint, as the last statement of a batch, or raise :class:`LeaseLost`; the caller commits."""
        partition = self._partition
        moved = await conn.fetchval(
            self._sql["move_checkpoint"],
            *partition.key,
            self._node,
            partition.epoch,
            self.position,
            to,
            events,
            self._rate.add(events),
            partition.run,
        )
        if not moved:
            raise lost(partition)

    def commit(self, to: int) -> None:
        """Take over the new position after the commit."""
        self.position, self.moved_at = to, time.monotonic()


MEMORY = 10.0
"""Time constant of the averaged rate, in seconds."""


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
