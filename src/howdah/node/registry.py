"""The table of nodes: the row of this process, under a random id, from its insertion to its removal."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

import msgspec

from howdah.errors import DatabaseUnreachable, HowdahError
from howdah.node.heartbeat import LeaseHolder
from howdah.node.parts import NodeContext
from howdah.outcome import Ack, Outcome
from howdah.postgres import migrate, sql
from howdah.postgres.database import BROKEN, Database, Session
from howdah.version import __version__
from howdah.worker.options import WorkerOptions

log = logging.getLogger("howdah")

T = TypeVar("T")

SMALLEST_NODE = 2**20
"""Smaller ids came from a sequence. Its values can repeat after a crash or a failover, so ids are random now."""
LARGEST_NODE = 2**31 - 1
START_TRIES = 4
"""Tries of each step of the start while the connection breaks."""
START_PAUSE = 0.5
"""Seconds between two tries."""
START_ERRORS: tuple[type[BaseException], ...] = (*BROKEN, DatabaseUnreachable)
"""Errors after which a step of the start is tried again."""
RELEASE_TIMEOUT = 1.0
"""Seconds to release the jobs of a blocked event loop: the renewal of leases waits for it."""
DEREGISTER_TIMEOUT = 2.0
"""Seconds to mark the node as offline: a silent server must not hold up the exit."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseContext(NodeContext):
    """Shared by a node with a database with all its parts."""

    database: Database
    registration: Registration
    pool: Any

    @property
    def node(self) -> int:
        """The id of the node."""
        return self.registration.node


class DatabaseRegistry:
    """Registers a node in the table of nodes, and opens the connection pool of its handlers."""

    drain_together = True
    heartbeat_timeout = 1.0
    activity = "starts"

    def __init__(self, database: Database) -> None:
        self.database = database
        self._registration: Registration | None = None
        self._pool: Any = None

    @property
    def node(self) -> int:
        """The id of the node; 0: not registered."""
        return self._registration.node if self._registration else 0

    async def register(self, context: NodeContext) -> DatabaseContext:
        """Check the schema, insert the row of the node and open the pool."""
        database, options = self.database, context.options
        await retry_if_broken(lambda: migrate.check(database))
        await database.check(writes=True)
        registration = Registration(database, version=__version__, kinds=context.kinds, options=options)
        await retry_if_broken(registration.insert)
        self._registration = registration
        # the statements of handlers may take as long as their jobs
        self._pool = await database.pool(max(4, min(options.slots, 20)), command_timeout=None)
        shared = {field.name: getattr(context, field.name) for field in fields(context)}
        return DatabaseContext(database=database, registration=registration, pool=self._pool, **shared)

    def connect(self) -> Session:
        """Return a connection for the heartbeat thread."""
        return Session(self.database, "heartbeat")

    async def deregister(self) -> None:
        """Mark the node as offline."""
        assert self._registration is not None
        try:
            await asyncio.wait_for(self._registration.remove(), DEREGISTER_TIMEOUT)
        except Exception as error:
            log.warning("could not mark the node as offline: %s", str(error) or type(error).__name__)

    async def close(self) -> None:
        """Close the pool without waiting for its connections."""
        if self._pool:
            self._pool.terminate()


class Unregistered:
    """The registry of a process that claims no jobs, and so needs neither a row nor a heartbeat: a control plane."""

    drain_together = True
    heartbeat_timeout = 0.0
    activity = "starts"
    node = 0

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, context: NodeContext) -> NodeContext:
        """Check the schema."""
        await migrate.check(self._database)
        return context

    def connect(self) -> Session:
        """Return a connection for the heartbeat thread."""
        return Session(self._database, "heartbeat")

    async def deregister(self) -> None: ...

    async def close(self) -> None: ...


class NodeRenewal:
    """Renews the job leases of one holder and stores the state of the node, in one statement."""

    def __init__(self, context: DatabaseContext, holder: LeaseHolder) -> None:
        self._registration = context.registration
        self._lease = context.options.lease
        self._holder = holder
        self._state = context.state
        self._drain = context.drain
        statements = sql.load("howdah.node", schema=context.database.schema)
        self.statement = statements["heartbeat"]
        self._release = statements["release_unstarted"]

    async def release_overdue(self, session: Session) -> Callable[[], None]:
        """Release prefetched jobs that a blocked event loop keeps from idle nodes.

        Never raises: jobs that could not be released are released by the event loop when it runs again.
        """
        jobs = self._holder.overdue.pop()
        if not jobs:
            return _nothing
        values = [job.token for job in jobs], [job.id for job in jobs], [job.attempt for job in jobs]
        released: set[tuple[int, int]] = set()
        try:
            rows = await session.fetch(self._release, self._registration.node, *values, timeout=RELEASE_TIMEOUT)
            released = {(row["token"], row["id"]) for row in rows}
            log.warning("released %d prefetched jobs: the event loop is blocked", len(released))
        except Exception as error:
            log.warning("could not release %d prefetched jobs of a blocked event loop: %s", len(jobs), error)
        acks = [Ack(job, Outcome.RELEASED, 0, recorded=(job.token, job.id) in released) for job in jobs]
        return partial(self._holder.overdue.released, acks)

    async def __call__(self, session: Session) -> Callable[[], None]:
        state, tokens, at = self._state(), self._holder.tokens(), time.monotonic()
        # a reply that takes more than a third of a lease comes too late to be of use
        limit = max(1.0, self._lease / 3)
        node = self._registration.node
        row = await session.fetchrow(self.statement, node, tokens, self._lease, *state, timeout=limit)
        lost, wanted = list(row["lost"]), list(row["cancel"])
        if not row["registered"]:  # pruned while this process was frozen, or lost in a failover
            await self._registration.insert_again(session)
            log.warning("the row of node %d was missing; registered again", node)

        def apply() -> None:
            self._holder.renewed([token for token in tokens if token not in lost], at)
            if lost:
                self._holder.lose(lost, "the lease expired and was reset")
            if wanted:
                self._holder.cancel(wanted)
            if row["leaving"]:
                self._drain()

        return apply


def _nothing() -> None:
    pass


async def retry_if_broken(start: Callable[[], Awaitable[T]]) -> T:
    """Run a step of the start, and again if the connection breaks: that must not end the process."""
    for _ in range(START_TRIES - 1):
        try:
            return await start()
        except START_ERRORS as error:
            log.warning("a connection broke during the start (%s); trying again", error)
            await asyncio.sleep(START_PAUSE)
    return await start()
