"""The store of the job queue. Each method passes parameters to a statement; the decisions are in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import asyncpg

from howdah.job import Job
from howdah.jobs.ack import AckRecorder
from howdah.jobs.claim import Claimer
from howdah.jobs.hold import Holds
from howdah.jobs.labels import expand, had
from howdah.jobs.partition import PartitionedClaim
from howdah.jobs.scope import ClaimScope
from howdah.jobs.transact import TransactionalAck
from howdah.jobs.wakeup import SharedConnections, Wakeup, channel
from howdah.node.heartbeat import ALL, Contact, Judged
from howdah.outcome import Ack
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.postgres.listen import Listener
from howdah.store import JobLogEntry, JobLogStore, RunRecord, Transaction
from howdah.worker.job_log import lease_lost

IDLE = 1.0
"""Lease lengths after which the server ends an idle transaction, as of a frozen process."""
MOST_LINES = 10_000
"""Log lines kept per attempt."""


class JobStore:
    """Claims, acks and waits for one node."""

    def __init__(
        self,
        database: Database,
        node: int,
        *,
        kinds: Sequence[str],
        queues: Sequence[str] | None,
        lease: float,
        poll: float,
        notify: bool,
        pool: asyncpg.Pool,
        labels: Collection[str] = (),
        shared: SharedConnections | None = None,
    ) -> None:
        self._node = node
        self._lease = lease
        self._pool = pool
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._transact = TransactionalAck(database.schema, self._sql, pool, node, IDLE * lease)
        self._shared = shared
        self._claims = shared.claims if shared else Session(database, "claim", on_connect=self.forget)
        self._acks = shared.acks if shared else Session(database, "ack")
        self._resets = Session(database, "reset")  # separate: a large reset must not delay acks
        self.contact = Contact(database, self._resets, lease=lease, remote=shared is not None)
        if shared:
            self._listener = shared.listener
        else:
            self._listener = Listener(database, channel(database.schema), self.notify) if notify else None
        all_labels = had(queues, labels)
        scope = ClaimScope(None if queues is None else expand(queues, all_labels), all_labels)
        self._wakeup = Wakeup(self._claims, self._sql, scope.named, poll=poll, deaf=lambda: self.deaf)
        self._holds = Holds(self._acks, self._sql, kinds)
        self._recorder = AckRecorder(self._acks, self._sql, self._wakeup.expect, self._holds)
        claims = PartitionedClaim(self._claims, self._sql, database.schema)
        self._claimer = Claimer(
            self._claims, self._sql, claims, node, scope, self._wakeup, self._holds, lease=lease, shared=shared
        )

    @property
    def deaf(self) -> bool:
        """True if notifications cannot arrive, so that the store polls."""
        return self._listener is None or self._listener.deaf

    @property
    def wakeups_lost(self) -> bool:
        """True if notifications are enabled and do not arrive."""
        return self._listener is not None and self._listener.reported

    @property
    def job_log(self) -> JobLogStore:
        """The store of the job logs: this one."""
        return self

    async def listen(self, stop: asyncio.Event) -> None:
        """Receive notifications until ``stop``."""
        if self._listener:
            await self._listener.run(stop)

    # ---------------------------------------------------------------- the store of this node's worker

    async def claim(self, limit: int, room: Mapping[str, int]) -> list[Job]:
        """Claim up to ``limit`` jobs for this node."""
        return await self.claim_for(self._node, limit, room)

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        """Record the outcomes of this node's attempts."""
        return await self.ack_for(self._node, acks, finished)

    async def release(self, tokens: Sequence[int]) -> int:
        """Release all jobs of these leases of this node."""
        return await self.release_for(self._node, tokens)

    async def write_log(self, job: Job, entry: JobLogEntry) -> None:
        """Store a log entry of a running job of this node."""
        await self.write_log_for(self._node, job, entry)

    async def record_run(self, job: Job, run: RunRecord) -> None:
        """Store the run record of a running job of this node."""
        await self.record_run_for(self._node, job, run)

    async def rest(self) -> None:
        await self._wakeup.wait()

    def wake(self) -> None:
        self._wakeup.wake()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        await self._transact.run(job, body)

    async def transact_batch(self, body: Callable[[Transaction], Awaitable[Sequence[Ack]]]) -> Sequence[Ack]:
        return await self._transact.run_batch(body)

    # ---------------------------------------------------------------- the same for any node

    async def claim_for(self, node: int, limit: int, room: Mapping[str, int]) -> list[Job]:
        """Claim up to ``limit`` jobs for a node."""
        return await self._claimer.claim(node, limit, room)

    async def ack_for(self, node: int, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        """Record the outcomes of a node's attempts. Another node than this one may send two reports at once."""
        return await self._recorder.ack(node, acks, finished, alone=node == self._node)

    async def release_for(self, node: int, tokens: Sequence[int]) -> int:
        """Release all jobs of these leases of a node without charging an attempt; returns their number."""
        row = await self._acks.fetchrow(self._sql["release"], node, list(tokens))
        return int(row["requeued"] + row["ended"])

    async def reset(self, most: int = 100, judged: Judged = ALL) -> tuple[int, int, int]:
        """Reset expired leases: (leases, requeued, ended). Safe on every node at once."""
        row = await self._resets.fetchrow(self._sql["reset"], most, *judged, timeout=60)
        return row["leases"], row["requeued"], row["ended"]

    async def write_log_for(self, node: int, job: Job, entry: JobLogEntry) -> None:
        """Store a log entry of a running job of a node."""
        row = await self._pool.fetchrow(
            self._sql["write_log"],
            node,
            job.id,
            job.token,
            entry.stream,
            entry.lines,
            entry.progress,
            entry.note,
            MOST_LINES,
        )
        if not row["held"]:
            raise lease_lost(job)

    async def record_run_for(self, node: int, job: Job, run: RunRecord) -> None:
        """Store the run record of a running job of a node."""
        given = (node, job.id, job.token, run.state, run.spec, run.code, run.result)
        if not await self._pool.fetchval(self._sql["record_run"], *given):
            raise lease_lost(job)

    async def close(self) -> None:
        """Close the connections."""
        for session in (self._resets,) if self._shared else (self._claims, self._acks, self._resets):
            await session.close()

    def notify(self, queue: str | None) -> None:
        """Wake the worker: jobs were enqueued in a queue, or may have been in any."""
        self._claimer.notify(queue)

    def forget(self) -> None:
        """Drop what was seen through a replaced connection: the next one may lead to another server."""
        self._claimer.forget()
