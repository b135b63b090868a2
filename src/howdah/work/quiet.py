"""Quiet: those who drain together. Nobody ends before all have found nothing since the last of them did something."""

from __future__ import annotations


class Quiet:
    """What one does may be work for another: a job appends an event, a consumer enqueues a job.

    >>> quiet = Quiet(2)
    >>> quiet.idle("jobs", quiet.turn)
    False
    >>> quiet.busy()
    >>> quiet.idle("consumers", quiet.turn), quiet.idle("jobs", quiet.turn)
    (False, True)
    """

    def __init__(self, members: int) -> None:
        self._members = members
        self._idle: dict[object, int] = {}
        self._over = False
        self.turn = 0
        """Rises whenever somebody did something."""

    def busy(self) -> None:
        """Somebody did something that may be work for others."""
        self.turn += 1

    def leave(self, who: object) -> None:
        """``who`` ends for a reason of its own; nobody need wait for it."""
        self._members -= 1
        self._idle.pop(who, None)

    def idle(self, who: object, since: int) -> bool:
        """``who`` has looked since this turn and found nothing; returns whether all may end."""
        self._idle[who] = since
        still = len(self._idle) == self._members and all(turn == self.turn for turn in self._idle.values())
        self._over = self._over or still
        return self._over
