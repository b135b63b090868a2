"""Coordinates ``--drain``: workers and consumers exit only when all have been idle since the last activity."""

from __future__ import annotations


class DrainGroup:
    """The workers and consumers of a node that drain together.

    The activity of one can be work for another: a job appends an event, a consumer enqueues a job.

    >>> group = DrainGroup(2)
    >>> group.idle("jobs", group.activity)
    False
    >>> group.active()
    >>> group.idle("consumers", group.activity), group.idle("jobs", group.activity)
    (False, True)
    """

    def __init__(self, members: int) -> None:
        self._members = members
        self._idle: dict[object, int] = {}
        self._drained = False
        self.activity = 0
        """Number of the last activity of a member."""

    def active(self) -> None:
        """Count an activity that can be work for other members."""
        self.activity += 1

    def leave(self, member: object) -> None:
        """Remove a member that ends for another reason, so that the others do not wait for it."""
        self._members -= 1
        self._idle.pop(member, None)

    def idle(self, member: object, since: int) -> bool:
        """Note that a member found no work since activity ``since``; returns whether all members may exit."""
        self._idle[member] = since
        drained = len(self._idle) == self._members and all(seen == self.activity for seen in self._idle.values())
        self._drained = self._drained or drained
        return self._drained
