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
