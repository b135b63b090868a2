"""The stored checkpoint of one partition, moved by its owner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from howdah.events.batch import lost
from howdah.events.partition import Partition
from howdah.events.poll_interval import Rate

RESTARTED = "the server was restarted or replaced"
"""Why a partition consumer ends when the server is in another run: only the stored checkpoint is valid then."""


class CheckpointRejected(Exception):
    """A partition is no longer consumed here; the message gives the reason."""


class Checkpoint:
    """The stored position of a partition. It moves only in the partition's run of the server and under its epoch."""

    def __init__(self, sql: Mapping[str, str], share: Partition, node: int) -> None:
        self._sql = sql
        self._share = share
        self._node = node
        self._rate = Rate()
        self.position = share.position
        self.moved_at = time.monotonic()

    async def settle(self, conn: Any, to: int, events: int) -> None:
        """Move the checkpoint, as the last statement of a batch, or raise :class:`LeaseLost`; the caller commits."""
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
        """Take over the new position after the commit."""
        self.position, self.moved_at = to, time.monotonic()
