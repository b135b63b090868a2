"""Slots: how many jobs may run at once; one worker's own, or shared by several."""

from __future__ import annotations


class Slots:
    """A number of places, and how many are taken."""

    __slots__ = ("taken", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0

    @property
    def free(self) -> int:
        return self.total - self.taken

    def cost(self, slots: int) -> int:
        """What a job takes that wants so many: never more than there are, so that it can run at all."""
        return min(slots, self.total)
