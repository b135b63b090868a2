"""Registers this process among the nodes of the database."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from howdah.errors import HowdahError
from howdah.fence import new_node
from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.work.options import WorkerOptions


def node_name() -> str:
    """What people call this process; never used to tell nodes apart."""
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
        """Add the row; returns its id, random and new for every start."""
        session = Session(self._database, "register")
        try:
            # an id that is taken: another node drew the same, or the answer to our own insert was lost
            while not await self._insert(session):
                self.node = new_node()
        finally:
            await session.close()
        return self.node

    async def insert_again(self, session: Session) -> None:
        """Add the row again under the same id after it was pruned, or forgotten in a failover."""
        if not await self._insert(session):
            raise HowdahError(f"node {self.node} is another process by now; restart this one")

    async def remove(self) -> None:
        """Mark the node as offline, so that the others need not wait for its heartbeat."""
        session = Session(self._database, "deregister")
        try:
            await session.fetch(self._sql["deregister"], self.node)
        finally:
            await session.close()

    async def _insert(self, session: Session) -> bool:
        return await session.fetchval(self._sql["register"], self.node, *self._values) is not None
