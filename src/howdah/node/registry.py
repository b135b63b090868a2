"""The registry of nodes: the row of this process, under a random id."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from howdah.errors import HowdahError
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.worker.options import WorkerOptions

SMALLEST_NODE = 2**20
"""Smaller ids came from a sequence. Its values can repeat after a crash or a failover, so ids are random now."""
LARGEST_NODE = 2**31 - 1


def new_node() -> int:
    """Return a random id for this start of the process."""
    return SMALLEST_NODE + secrets.randbelow(LARGEST_NODE - SMALLEST_NODE + 1)


def node_name() -> str:
    """Return the display name of this process; not unique, so never used as an id."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Registration:
    """The row of this process in the table of nodes."""

    def __init__(self, database: Database, *, version: str, kinds: Sequence[str], options: WorkerOptions) -> None:
        self._database = database
        self._sql = sql.load("howdah.node", schema=database.schema)
        limits = options.limited
        self._values: tuple[Any, ...] = (
            node_name(),
            version,
            list(options.queues) if options.queues is not None else None,
            list(kinds),
            options.slots,
            list(options.labels),
            msgspec.json.encode(limits).decode() if limits else None,
            options.poll,
        )
        self.node = new_node()

    async def insert(self) -> int:
        """Insert the row; returns its id, which is random and new for every start."""
        session = Session(self._database, "register")
        try:
            # the id exists: another node drew the same one, or the reply to the first insert was lost
            while not await self._insert(session):
                self.node = new_node()
        finally:
            await session.close()
        return self.node

    async def insert_again(self, session: Session) -> None:
        """Insert the row again under the same id after it was pruned or lost in a failover."""
        if not await self._insert(session):
            raise HowdahError(f"node id {self.node} now belongs to another process; restart this one")

    async def remove(self) -> None:
        """Mark the node as offline, so that other nodes do not wait for its heartbeat to time out."""
        session = Session(self._database, "deregister")
        try:
            await session.fetch(self._sql["deregister"], self.node)
        finally:
            await session.close()

    async def _insert(self, session: Session) -> bool:
        return await session.fetchval(self._sql["register"], self.node, *self._values) is not None
