"""Checkpoint: how far one share got, as it is stored, and how its owner moves it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from howdah.log.batch import lost
from howdah.log.pace import Rate
from howdah.log.share import Share

RESTARTED = "the server was restarted or replaced"
"""Why a runner ends when the server is in another run: its memory is void, and the stored checkpoint counts."""


class Ended(Exception):
    """A share is no longer followed; says why."""


class Checkpoint:
    """The stored position of a share. It moves only in the run of the server, and under the epoch, of the share."""

    def __init__(self, sql: Mapping[str, str], share: Share, node: int) -> None:
        self._sql = sql
        self._share = share
        self._node = node
        self._rate = Rate()
        self.position = share.position
        self.moved_at = time.monotonic()

    async def settle(self, conn: Any, to: int, events: int) -> None:
        """Move it, as the last statement of a batch, or raise :class:`LeaseLost`; the caller commits."""
        share = self._share
        settled = await conn.fetchval(
            self._sql["settle"],
            *share.key,
            self._node,
            share.epoch,
            self.position,
            to,
            events,
            self._rate.add(events),
            share.run,
        )
        if not settled:
            raise lost(share)

    def commit(self, to: int) -> None:
        """Note that it was moved and committed."""
        self.position, self.moved_at = to, time.monotonic()
