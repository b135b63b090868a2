"""JobStore: a worker's view of the job tables. Methods are parameters, statement, rows; decisions are in SQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import asyncpg

from howdah.job import Job
from howdah.jobs.bell import Bell
from howdah.jobs.holds import Holds
from howdah.jobs.labels import expand, had
from howdah.jobs.recorder import Recorder
from howdah.jobs.shared import Shared, channel
from howdah.jobs.transact import Transact
from howdah.journal import Run, Said, lost
from howdah.outcome import Ack
from howdah.pg import sql
from howdah.pg.database import UNSURE, Database, Session
from howdah.pg.listen import Listener
from howdah.store import Transaction

IDLE = 1.0
"""Leases after which the server ends a transaction nobody drives any more, as when its process is frozen."""
SWEEP = 1.0
"""Seconds after which a claim looks below its watermarks again, for what committed late or was handed back."""
PROMOTE = 0.05
MOST_LINES = 10_000
"""Lines kept of what one attempt says."""
FEWEST_RUNS = 8


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
        shared: Shared | None = None,
    ) -> None:
        self._node = node
        self._everything = queues is None
        self._labels = had(queues, labels)
        self._lease = lease
        self._pool = pool
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._transact = Transact(database.schema, pool, node, IDLE * lease)
        self._shared = shared
        self._claims = shared.claims if shared else Session(database, "claim", on_connect=self.forget)
        self._acks = shared.acks if shared else Session(database, "ack")
        self._resets = Session(database, "reset")  # of its own: a large reset must not hold up the acks
        if shared:
            self._listener = shared.listener
        else:
            self._listener = Listener(database, channel(database.schema), self._heard) if notify else None
        named = None if queues is None else expand(queues, self._labels)
        self._bell = Bell(self._claims, self._sql, named, poll=poll, deaf=lambda: self.deaf, labels=self._labels)
        self._holds = Holds(self._acks, self._sql, kinds)
        self._recorder = Recorder(self._acks, self._sql, self._bell.expect, self._holds)
        self._watermarks: dict[tuple[str, int], int] = {}
        self._swept = 0.0
        self._promoted = 0.0
        self._runs = FEWEST_RUNS
        self._turn = 0
        self._newest = 0
        """The newest token this node has had."""
        self._unheard = 0.0
        """Until when there may be a newer lease: the reply to a claim was lost."""

    @property
    def deaf(self) -> bool:
        """Whether wake-ups cannot arrive, so that it polls."""
        return self._listener is None or self._listener.deaf

    @property
    def troubled(self) -> bool:
        """Whether wake-ups were wanted and do not arrive."""
        return self._listener is not None and self._listener.told

    async def listen(self, stop: asyncio.Event) -> None:
        """Hear wake-ups until ``stop``."""
        if self._listener:
            await self._listener.run(stop)

    async def claim(self, most: int, room: Mapping[str, int], *, node: int | None = None) -> list[Job]:
        """Take up to ``most`` jobs; ``node``: for another node than the store's own."""
        now = time.monotonic()
        if now < self._unheard:
            await self._release_unheard()
        if not self._bell.known and not await self._look_for_queues():
            return []
        if self._bell.due():
            await self._promote(now)
        if self._bell.was_rung():  # claim first; the claim that follows does the rest
            self._watermarks.clear()
        else:
            await self._look_around(now)
        queues = self._in_turn()
        marks = self._watermarks
        runs = min(most, self._runs)
        try:
            rows = await self._claims.fetch(
                self._sql["claim"],
                queues,
                [room.get(queue, most) for queue in queues],
                most,
                node or self._node,
                self._lease,
                self._holds.free,
                runs,
                [queue for queue, _ in marks],
                [priority for _, priority in marks],
                list(marks.values()),
                self._shared.newest if self._shared else self._newest,
            )
        except UNSURE:
            if node is None:  # for others whoever asked in their name looks after it
                self._unheard = time.monotonic() + self._lease
            raise
        if not rows:
            self._watermarks.clear()  # the last look before falling asleep must see what was handed back, too
            self._runs = min(most, max(runs, 64))
            if self._everything and len(await self._look_for_queues()) > len(queues):
                return await self.claim(most, room, node=node)
            return []
        self._bell.awake()
        heads = 0
        jobs = []
        # every name is unpacked for every job: a rest of them would be a list each
        for id, max_attempts, args, key, timeout, meta, trace, waited, rid, p, q, k, a, t in rows:
            if rid is not None:  # the first of a run
                priority, queue, kind, attempt, token = p, q, k, a, t
                heads += 1
                if rid > marks.get((queue, priority), 0):
                    marks[queue, priority] = rid
            jobs.append(Job(id, queue, kind, attempt, max_attempts, token, args, key, timeout, meta, trace, waited))
        if node is None:
            self._newest = token
        if self._shared:
            # claims for other nodes: no clock that goes back gives one of them the same token again
            self._shared.newest = max(self._shared.newest, token)
        # lock about as many runs next time as this time took, more when it fell short
        self._runs = max(FEWEST_RUNS, heads + heads // 4 + 4) if len(jobs) == most else runs * 4
        return jobs

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int], *, node: int | None = None) -> list[Ack]:
        """Record how attempts ended; ``node``: of another node than the store's own, which may report twice at once."""
        return await self._recorder.ack(node or self._node, acks, finished, alone=node is None)

    async def release(self, tokens: Sequence[int], *, node: int | None = None) -> int:
        """Hand back all that is left of these leases; ``node``: of another node than the store's own."""
        row = await self._acks.fetchrow(self._sql["release"], node or self._node, list(tokens))
        return int(row["requeued"] + row["ended"])

    async def reset(self, most: int = 100) -> tuple[int, int, int]:
        """Take back expired leases: (leases, requeued, ended). Safe on every node at once."""
        row = await self._resets.fetchrow(self._sql["reset"], most, timeout=60)
        return row["leases"], row["requeued"], row["ended"]

    async def rest(self) -> None:
        await self._bell.rest()

    def wake(self) -> None:
        self._bell.ring()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        await self._transact.run(job, body)

    async def say(self, job: Job, said: Said, *, node: int | None = None) -> None:
        """Keep what a running job says; ``node``: of another node than the store's own."""
        row = await self._pool.fetchrow(
            self._sql["say"],
            node or self._node,
            job.id,
            job.token,
            said.stream,
            said.lines,
            said.progress,
            said.note,
            MOST_LINES,
        )
        if not row["held"]:
            raise lost(job)

    async def note_run(self, job: Job, run: Run, *, node: int | None = None) -> None:
        """Keep the record of a run; ``node``: of another node than the store's own."""
        given = (node or self._node, job.id, job.token, run.state, run.spec, run.code, run.result)
        if not await self._pool.fetchval(self._sql["note_run"], *given):
            raise lost(job)

    async def close(self) -> None:
        """Close the connections."""
        for session in (self._resets,) if self._shared else (self._claims, self._acks, self._resets):
            await session.close()

    async def _release_unheard(self) -> None:
        """Release what was claimed and not heard of. It was not started, so it costs no attempt and need not wait.

        The server may carry out the claim late, so this is done until the lease was there, or would have expired.
        """
        row = await self._claims.fetchrow(self._sql["release_unheard"], self._node, self._newest)
        if row["leases"]:
            self._unheard = 0.0

    async def _look_around(self, now: float) -> None:
        """What a claim would not see by itself: holds, jobs fallen due, rows below the watermarks, new queues."""
        if self._holds.stale and not self._shared:  # those who share have somebody who looks for all of them
            self._bell.remind(await self._holds.look())
        if now - self._promoted >= PROMOTE:
            await self._promote(now)
        if now - self._swept >= SWEEP:
            self._watermarks.clear()
            self._swept = now
            if self._everything:  # while busy nobody dozes, and a new queue must be seen all the same
                await self._look_for_queues()

    async def _promote(self, now: float) -> None:
        self._promoted = now
        promoted, _runs, due_in = await self._claims.fetchrow(self._sql["promote"], self._bell.known, 1000)
        self._bell.expect(0.0 if promoted >= 1000 else due_in)

    async def _look_for_queues(self) -> list[str]:
        self._bell.know(await self._claims.fetchval(self._sql["queues"]))
        return self._bell.known

    def _in_turn(self) -> list[str]:
        """The queues, each time starting with the next one, so that none starves the others."""
        known = self._bell.known
        self._turn = (self._turn + 1) % len(known)
        return known[self._turn :] + known[: self._turn]

    def _heard(self, _queue: str | None) -> None:
        self._bell.ring()

    def forget(self) -> None:
        """The connection is new: what was seen through the old one may be behind."""
        self._watermarks.clear()
