"""The store of the job queue. Each method passes parameters to a statement; the decisions are in SQL."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import asyncpg
import msgspec

from howdah.job import Job
from howdah.jobs.ack import AckRecorder
from howdah.jobs.hold import Holds
from howdah.jobs.labels import expand, had
from howdah.jobs.transact import TransactionalAck
from howdah.jobs.wakeup import SharedConnections, Wakeup, channel
from howdah.node.heartbeat import ALL, Contact, Judged
from howdah.outcome import Ack
from howdah.postgres import sql
from howdah.postgres.database import UNCERTAIN, Database, Session
from howdah.postgres.listen import Listener
from howdah.store import JobLogEntry, JobLogStore, RunRecord, Transaction
from howdah.worker.job_log import lease_lost

IDLE = 1.0
"""Lease lengths after which the server ends an idle transaction, as of a frozen process."""
SWEEP = 1.0
"""Seconds between claims that ignore the watermarks, to find late commits and released jobs."""
PROMOTE = 0.05
"""Seconds between promotions of due jobs while busy."""
MOST_LINES = 10_000
"""Log lines kept per attempt."""
FEWEST_RUNS = 8
"""Smallest number of runs that a claim locks."""


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
        self._everything = queues is None
        self._labels = had(queues, labels)
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
            self._listener = Listener(database, channel(database.schema), self._notified) if notify else None
        named = None if queues is None else expand(queues, self._labels)
        self._wakeup = Wakeup(self._claims, self._sql, named, poll=poll, deaf=lambda: self.deaf, labels=self._labels)
        self._holds = Holds(self._acks, self._sql, kinds)
        self._recorder = AckRecorder(self._acks, self._sql, self._wakeup.expect, self._holds)
        self._watermarks: dict[str, dict[int, int]] = {}
        """Per queue and priority, the arrival number from which a claim starts."""
        self._swept = 0.0
        self._promoted = 0.0
        self._runs = FEWEST_RUNS
        self._rotation = 0
        self._newest = 0
        """The newest token of this node."""
        self._uncertain_until = 0.0
        """Until when an unknown lease may exist because the reply to a claim was lost. The time begins with the next
        reply, or an outage longer than a lease would charge jobs that were not started."""

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
        now = time.monotonic()
        if now < self._uncertain_until:
            await self._release_unconfirmed()
        if not self._wakeup.queues and not await self._find_queues():
            return []
        if self._wakeup.due():
            await self._promote(now)
        if self._wakeup.was_notified():  # claim first; the next claim does the periodic work
            self._watermarks.clear()
        else:
            await self._periodic_work(now)
        queues = self._rotated_queues()
        marks = self._watermarks
        runs = min(limit, self._runs)
        try:
            rows = await self._claims.fetch(
                self._sql["claim"],
                queues,
                [room.get(queue, limit) for queue in queues],
                limit,
                node,
                self._lease,
                self._holds.free,
                runs,
                msgspec.json.encode(marks).decode(),
                self._shared.newest if self._shared else self._newest,
            )
        except UNCERTAIN:
            if node == self._node:  # claims for other nodes are confirmed by the control plane
                self._uncertain_until = math.inf
            raise
        if not rows:
            self._watermarks.clear()  # the last claim before sleeping must also find released jobs
            self._runs = min(limit, max(runs, 64))
            if self._everything and len(await self._find_queues()) > len(queues):
                return await self.claim_for(node, limit, room)
            return []
        self._wakeup.stay_awake()
        locked = 0
        jobs = []
        # unpacking all names is faster than a starred rest, which would be a list per job
        for id, max_attempts, args, key, timeout, meta, trace, waited, rid, p, q, k, a, t, n in rows:
            if rid is not None:  # the first row of a run
                queue, kind, attempt, token = q, k, a, t
                locked += n
                if rid > marks.setdefault(queue, {}).get(p, 0):
                    marks[queue][p] = rid
            jobs.append(Job(id, queue, kind, attempt, max_attempts, token, args, key, timeout, meta, trace, waited))
        if node == self._node:
            self._newest = token
        if self._shared:
            # claims for other nodes: a clock that goes back must not repeat a token
            self._shared.newest = max(self._shared.newest, token)
        # lock about as many runs next time as were used, more if they did not suffice
        self._runs = max(FEWEST_RUNS, locked + locked // 4 + 4) if len(jobs) == limit else runs * 4
        return jobs

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

    async def _release_unconfirmed(self) -> None:
        """Release jobs of a claim whose reply was lost. They were not started, so no attempt is charged.

        The server may execute the claim late, so this is repeated until the lease was found or would have expired.
        """
        row = await self._claims.fetchrow(self._sql["release_unconfirmed"], self._node, self._newest)
        if row["leases"]:
            self._uncertain_until = 0.0
        elif self._uncertain_until == math.inf:
            self._uncertain_until = time.monotonic() + self._lease

    async def _periodic_work(self, now: float) -> None:
        """Find what a claim does not see: ended holds, due jobs, rows below the watermarks, new queues."""
        if self._holds.stale and not self._shared:  # shared connections: the control plane refreshes the holds
            self._wakeup.remind(await self._holds.refresh())
        if now - self._promoted >= PROMOTE:
            await self._promote(now)
        if now - self._swept >= SWEEP:
            self._watermarks.clear()
            self._swept = now
            if self._everything:  # a busy node must also find new queues
                await self._find_queues()

    async def _promote(self, now: float) -> None:
        self._promoted = now
        queues = None if self._everything else self._wakeup.queues
        promoted, _runs, due_in = await self._claims.fetchrow(self._sql["promote"], queues, 1000)
        self._wakeup.expect(0.0 if promoted >= 1000 else due_in)

    async def _find_queues(self) -> list[str]:
        self._wakeup.set_queues(await self._claims.fetchval(self._sql["queues"]))
        return self._wakeup.queues

    def _rotated_queues(self) -> list[str]:
        """Return the queues, starting with the next one each time, so that none starves."""
        known = self._wakeup.queues
        self._rotation = (self._rotation + 1) % len(known)
        return known[self._rotation :] + known[: self._rotation]

    def _notified(self, _queue: str | None) -> None:
        self._wakeup.wake()

    def forget(self) -> None:
        """Drop the watermarks of a replaced connection: they may belong to another server."""
        self._watermarks.clear()
