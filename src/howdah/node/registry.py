"""Registry: this process among the nodes of the database."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec

from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.work.options import WorkerOptions


def node_name() -> str:
    """What people call this process; never used to tell nodes apart."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def register(database: Database, *, version: str, kinds: Sequence[str], options: WorkerOptions) -> int:
    """Announce this process; returns its id, fresh for every start."""
    session = Session(database, "register")
    limits = options.limited
    try:
        statement = sql.load("howdah.node", schema=database.schema)["register"]
        return int(
            await session.fetchval(
                statement,
                node_name(),
                version,
                list(options.queues) if options.queues is not None else None,
                list(kinds),
                options.slots,
                list(options.labels),
                msgspec.json.encode(limits).decode() if limits else None,
                options.poll,
            )
        )
    finally:
        await session.close()


async def deregister(database: Database, node: int) -> None:
    """Say goodbye, so that nobody waits for the next heartbeat."""
    session = Session(database, "deregister")
    try:
        await session.fetch(sql.load("howdah.node", schema=database.schema)["deregister"], node)
    finally:
        await session.close()
