"""Claims jobs for remote workers and records their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from howdah import telemetry
from howdah.control_plane.claimer import JobClaimer
from howdah.control_plane.reports import ReportRecorder
from howdah.job import Job
from howdah.jobs.hold import Holds
from howdah.jobs.store import JobStore
from howdah.jobs.wakeup import SharedConnections, channel
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.postgres.listen import Listener
from howdah.redact import secret_spellings
from howdah.secrets import marks
from howdah.store import JobLogEntry, RunRecord

LeaseKey = tuple[int, Any]
"""Token and id of a job or row."""
WorkerFilter = tuple[Sequence[str], Sequence[str] | None, Sequence[str]]
"""Kinds, queues (``None``: all) and labels of a worker."""
FilterKey = tuple[frozenset[str], frozenset[str] | None, frozenset[str]]
IDLE_CLAIMER_TTL = 300.0
"""Seconds after which the claimer of a filter that no worker uses is closed."""
ACK_CONNECTIONS = 4
"""PostgreSQL flushes concurrent commits together, so more connections do not help."""
HEARTBEAT_CONNECTIONS = 2
"""Separate from those for outcomes: an outcome that waits for a lock must not delay heartbeats."""
REFRESH_EVERY = 1.0
"""Seconds between two reads of the kinds on hold."""


class SessionPool(Session):
    """Several self-healing connections behind the interface of one.

    A call takes the connection that was used last, so no more are open than are needed at once.
    """

    def __init__(self, database: Database, role: str, size: int) -> None:
        super().__init__(database, role)
        self._all = [Session(database, role) for _ in range(size)]
        self._free = list(self._all)
        self._available = asyncio.Semaphore(size)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Take a connection for several statements."""
        async with self._available:
            session = self._free.pop()
            try:
                async with session.use() as conn:
                    yield conn
            finally:
                self._free.append(session)

    def drop(self) -> None:
        """Discard all connections; the next calls open new ones."""
        for session in self._all:
            session.drop()

    async def close(self) -> None:
        """Close all open connections."""
        for session in self._all:
            await session.close()


class RemoteJobQueue:
    """One claimer per distinct filter (kinds, queues, labels), shared by all workers with that filter."""

    def __init__(self, database: Database, pool: Any, *, lease: float, poll: float, notify: bool) -> None:
        self._database = database
        self._pool = pool
        self._lease = lease
        self._poll = poll
        self._sql = sql.load("howdah.control_plane", schema=database.schema)
        self._listener = Listener(database, channel(database.schema), self._wake) if notify else None
        self._shared = SharedConnections(
            Session(database, "claim", on_connect=self._reset_stores),
            SessionPool(database, "ack", ACK_CONNECTIONS),
            self._listener,
        )
        self._heartbeats = SessionPool(database, "heartbeat", HEARTBEAT_CONNECTIONS)
        self._claimers: dict[FilterKey, JobClaimer] = {}
        self._closing = False
        self._holds = Holds(self._shared.acks, sql.load("howdah.jobs", schema=database.schema))
        self._on_hold: frozenset[str] = frozenset()
        self._store = self._make_store([], None, frozenset())  # for outcomes, which need no filter
        self.reports = ReportRecorder(database, self._shared.acks)

    async def listen(self, stop: asyncio.Event) -> None:
        """Receive wake-ups until ``stop``."""
        if self._listener:
            await self._listener.run(stop)
        else:
            await stop.wait()

    async def claim(
        self, node: int, filter: WorkerFilter, *, limit: int, room: Mapping[str, int], timeout: float
    ) -> list[Job]:
        """Claim up to ``limit`` jobs; wait up to ``timeout`` seconds for the first one (long poll)."""
        until = time.monotonic() + timeout
        while True:
            on_hold = self._on_hold
            left = max(0.0, until - time.monotonic())
            jobs = await self._claim(node, filter, limit=limit, room=room, timeout=left)
            if jobs or on_hold == self._on_hold or time.monotonic() >= until:
                return jobs

    async def _claim(
        self, node: int, filter: WorkerFilter, *, limit: int, room: Mapping[str, int], timeout: float
    ) -> list[Job]:
        kinds, queues, labels = filter
        allowed = frozenset(kinds) - self._on_hold
        if self._closing:
            return []
        if not allowed:
            await asyncio.sleep(min(timeout, REFRESH_EVERY))
            return []
        key: FilterKey = (allowed, None if queues is None else frozenset(queues), frozenset(labels))
        claimer = self._claimers.get(key)
        if claimer is None:
            store = self._make_store(sorted(allowed), queues, key[2])
            claimer = self._claimers[key] = JobClaimer(store, lambda: not allowed & self._on_hold)
        return await claimer.claim(node, limit, room, timeout)

    def cancel_waits(self, node: int | None = None) -> None:
        """End the long polls of a node with an empty response. Without a node: all, and accept no new ones."""
        self._closing = self._closing or node is None
        for claimer in self._claimers.values():
            claimer.cancel_waits(node)

    async def ack(self, node: int, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        """Record outcomes. Repeated reports are idempotent; reports on lost leases are left out of the result."""
        covered = await self.reports.covered(node, acks)
        accepted = await self._store.ack_for(node, covered, finished)
        if len(accepted) == len(covered):
            return accepted
        return accepted + await self.reports.already_retried(node, covered, accepted)

    async def release(self, node: int, tokens: Sequence[int]) -> int:
        """Release what is left of leases; return the number of jobs."""
        return await self._store.release_for(node, tokens)

    async def release_jobs(self, node: int, keys: Sequence[LeaseKey]) -> int:
        """Release single jobs of a node. A lease of which nothing else is left keeps its position in the queue."""
        if not keys:
            return 0
        tokens, ids = [token for token, _ in keys], [id for _, id in keys]
        rows = await self._shared.acks.fetch(self._sql["whole_leases"], node, tokens, ids)
        whole = [row["token"] for row in rows]
        released = await self.release(node, whole) if whole else 0
        jobs = [Job(id, "", "", 1, 2, token, b"") for token, id in keys if token not in whole]
        accepted = await self.ack(node, [Ack(job, Outcome.RELEASED, 0) for job in jobs], ())
        return released + sum(ack.outcome in (Outcome.RELEASED, Outcome.CANCELLED) for ack in accepted)

    async def say(self, node: int, job: Job, entry: JobLogEntry) -> None:
        """Store log lines and the progress of a running job."""
        await self._store.write_log_for(node, job, entry)

    async def secrets_of(self, job_ids: Sequence[Any]) -> dict[Any, tuple[str, ...]]:
        """Return the secret argument values of these jobs, so that reported texts can be scrubbed of them."""
        ids = [id for id in job_ids if isinstance(id, int)]
        rows = await self._shared.acks.fetch(self._sql["secrets"], ids) if ids else []
        return {row["id"]: secret_spellings(msgspec.json.decode(row["args"]), marks(row["meta"])) for row in rows}

    async def note_run(self, node: int, job: Job, run: RunRecord) -> None:
        """Store the record of a run."""
        await self._store.record_run_for(node, job, run)

    async def heartbeat(self, node: int, tokens: Sequence[int]) -> tuple[set[int], list[int]]:
        """Renew leases; return the tokens that the node still holds, and the jobs to cancel."""
        if not tokens:
            return set(), []
        row = await self._heartbeats.fetchrow(self._sql["heartbeat"], node, list(tokens), self._lease)
        return set(row["kept"]), list(row["cancel"])

    async def refresh(self) -> None:
        """Read which kinds are on hold, and close claimers that no worker uses."""
        await self._holds.refresh()
        if self._holds.held != self._on_hold:
            self._on_hold = self._holds.held
            for claimer in self._claimers.values():
                claimer.cancel_waits()  # their filter has changed; claim() continues with another claimer
        old = time.monotonic() - IDLE_CLAIMER_TTL
        for key in [key for key, claimer in self._claimers.items() if claimer.idle and claimer.used_at < old]:
            await self._claimers.pop(key).close()

    async def hold(self, kind: str, seconds: float, reason: str | None) -> None:
        """Claim no jobs of a kind for a time, on all nodes."""
        await self._holds.put(kind, seconds, reason)
        await self.refresh()

    async def reset(self) -> tuple[int, int, int]:
        """Requeue jobs of expired leases."""
        leases, requeued, ended = await self._store.reset(judged=await self._store.contact.note())
        if leases:
            telemetry.emit("job.reset", leases=leases, requeued=requeued, ended=ended)
        return leases, requeued, ended

    async def close(self) -> None:
        """End all long polls and close the connections."""
        self.cancel_waits()
        await asyncio.gather(*(claimer.close() for claimer in self._claimers.values()))
        await self._store.close()
        await self._shared.claims.close()
        await self._shared.acks.close()
        await self._heartbeats.close()

    def _make_store(self, kinds: Sequence[str], queues: Sequence[str] | None, labels: frozenset[str]) -> JobStore:
        return JobStore(
            self._database,
            0,
            kinds=kinds,
            queues=queues,
            lease=self._lease,
            poll=self._poll,
            notify=False,
            pool=self._pool,
            labels=labels,
            shared=self._shared,
        )

    def _wake(self, queue: str | None) -> None:
        for claimer in self._claimers.values():
            claimer.store.notify(queue)

    def _reset_stores(self) -> None:
        """Drop what the stores remember of the server: the connection may lead to another one now."""
        for claimer in self._claimers.values():
            claimer.store.forget()
