"""Claim numbers: the control plane recognises a claim that comes late, and what a lost answer gave goes back."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from howdah.fleet import messages as m
from howdah.fleet.client import Turned

DOUBT = 60.0
"""Seconds after an unanswered claim in which it may still turn out to have been heard."""
PLAIN = 60.0
"""Seconds without numbers after a control plane of version 0.1 refused one; another may answer next."""
MOST_TOKENS = 10_000


class ClaimNumbers:
    """Makes the claims of one store, which come one after the other."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._last = 0
        self._doubt_until = 0.0
        self._plain_until = 0.0

    def claim(self, most: int, wait: float, room: Mapping[str, int], held: Collection[int]) -> m.Claim:
        """Return the next claim; ``held``: the tokens in hand."""
        now = time.monotonic()
        message = m.Claim(max=most, wait=wait, store=self._store, room=dict(room))
        if now >= self._plain_until:
            self._last += 1
            message.number = self._last
            if now < self._doubt_until and len(held) <= MOST_TOKENS:
                message.tokens = list(held)
        return message

    def unanswered(self) -> None:
        """Note that jobs may have been given to us in an answer that was lost."""
        self._doubt_until = time.monotonic() + DOUBT

    def is_late(self, error: BaseException) -> bool:
        """Whether the control plane has carried out this claim or a newer one, as when a proxy repeats a request."""
        return isinstance(error, Turned) and (error.status, error.code) == (409, "STALE")

    def is_unknown(self, error: BaseException) -> bool:
        """Whether a control plane of version 0.1 refused the number; the next claims have none."""
        old = isinstance(error, Turned) and error.status == 400 and "unknown field `number`" in str(error)
        if old:
            self._plain_until = time.monotonic() + PLAIN
        return old
