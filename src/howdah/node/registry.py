"""Registry: this process among the nodes of the database."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from howdah.pg import sql
from howdah.pg.database import Database, Session


def node_name() -> str:
    """What people call this process; never used to tell nodes apart."""
    return f"{socket.gethostname()}:{os.getpid()}"


async def register(
    database: Database, *, version: str, queues: Sequence[str] | None, kinds: Sequence[str], slots: int
) -> int:
    """Announce this process; returns its id, fresh for every start."""
    session = Session(database, "register")
    try:
        statement = sql.load("howdah.node", schema=database.schema)["register"]
        return int(
            await session.fetchval(
                statement,
                node_name(),
                version,
                list(queues) if queues is not None else None,
                list(kinds),
                slots,
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
