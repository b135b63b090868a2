"""Claims jobs: promotes due ones, finds the queues, and leases what waits in them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from howdah.job import Job
from howdah.jobs.hold import Holds
from howdah.jobs.partition import PartitionedClaim
from howdah.jobs.scope import EXPENSIVE, FEW, ClaimScope
from howdah.jobs.wakeup import SharedConnections, Wakeup
from howdah.postgres.database import UNCERTAIN, Session

SWEEP = 1.0
"""Seconds between claims that ignore the watermarks, to find late commits and released jobs."""
PROMOTE = 0.05
"""Seconds between promotions of due jobs while busy."""
COUNT_TTL = 10.0
"""Seconds during which slow claims are taken to be expensive, after one was."""
FEWEST_RUNS = 8
"""Smallest number of runs that a claim locks."""
SLOW, SLOW_PER_QUEUE, SLOW_PER_JOB = 0.001, 0.000_01, 0.000_1
"""Seconds of a claim above which it is checked whether it walked over what it could not take."""


class Claimer:
    """Claims of one store, for its node; of a control plane for any node."""

    def __init__(
        self,
        session: Session,
        sql: Mapping[str, str],
        claims: PartitionedClaim,
        node: int,
        scope: ClaimScope,
        wakeup: Wakeup,
        holds: Holds,
        *,
        lease: float,
        shared: SharedConnections | None,
    ) -> None:
        self._session = session
        self._sql = sql
        self._claims = claims
        self._node = node
        self._scope = scope
        self._wakeup = wakeup
        self._holds = holds
        self._lease = lease
        self._shared = shared
        self._busy = False
        """True if the last claim found jobs."""
        self._swept = 0.0
        self._promoted = 0.0
        self._runs = FEWEST_RUNS
        self._slow: tuple[Sequence[str], dict[str, int], int, float] | None = None
        """A claim that was slow and found jobs: its queues, where it ended, what had arrived before, its seconds."""
        self._counted = -math.inf
        """When a claim was counted as expensive."""
        self._newest = 0
        """The newest token of this node."""
        self._uncertain_until = 0.0
        """Until when an unknown lease may exist because the reply to a claim was lost. The time begins with the next
        reply, or an outage longer than a lease would charge jobs that were not started."""

    async def claim(self, node: int, limit: int, room: Mapping[str, int]) -> list[Job]:
        """Claim up to ``limit`` jobs for a node."""
        if time.monotonic() < self._uncertain_until:
            await self._release_unconfirmed()
        if self._wakeup.due():
            await self._promote()
        scope, jobs, found = self._scope, [], False
        notified = self._wakeup.was_notified()
        if notified:  # claim first; the next claim does the periodic work
            queues = scope.notified()
            if scope.expensive or scope.many:  # only what is new
                jobs = await self._claim_in_turn(node, limit, room, [queues] if queues else scope.rotated())
        else:
            found = await self._periodic_work()
        if not jobs:
            full = scope.restart() if notified or not self._busy else False
            jobs = await self._claim_in_turn(node, limit, room, scope.rotated())
            # if it is expensive, only the claim before sleeping looks at everything
            further = not jobs and not found and (full or (not scope.expensive and scope.restart()))
            if further and await self._find_queues():
                jobs = await self._claim_in_turn(node, limit, room, scope.rotated())
        self._busy = bool(jobs)
        if jobs:
            self._wakeup.stay_awake()
        self._wakeup.owed_at = scope.owed_at
        return jobs

    async def _claim_in_turn(
        self, node: int, limit: int, room: Mapping[str, int], batches: Iterable[Sequence[str]]
    ) -> list[Job]:
        for queues in batches:
            if jobs := await self._claim_from(node, limit, room, queues):
                return jobs
        return []

    async def _claim_from(self, node: int, limit: int, room: Mapping[str, int], queues: Sequence[str]) -> list[Job]:
        """Claim from these queues, in their order."""
        began, scope = time.monotonic(), self._scope
        runs, arrival = min(limit, self._runs), scope.arrival
        try:
            rows = await self._claims.fetch(
                queues,
                [room.get(queue, limit) for queue in queues],
                limit,
                node,
                self._lease,
                self._holds.free,
                runs,
                scope.watermarks(queues),
                self._shared.newest if self._shared else self._newest,
            )
        except UNCERTAIN:
            if node == self._node:  # claims for other nodes are confirmed by the control plane
                self._uncertain_until = math.inf
            raise
        locked = 0
        jobs = []
        lowest: dict[str, int] = {}
        # unpacking all names is faster than a starred rest, which would be a list per job
        for id, max_attempts, args, key, timeout, meta, trace, waited, rid, p, q, k, a, t, n in rows:
            if rid is not None:  # the first row of a run
                queue, kind, attempt, token = q, k, a, t
                locked += n
                lowest[queue] = p
                scope.advance(queue, p, rid)
            jobs.append(Job(id, queue, kind, attempt, max_attempts, token, args, key, timeout, meta, trace, waited))
        full = self._claims.partial or locked >= runs or len(jobs) == limit
        scope.examine(queues, room, limit, jobs, full=full)
        took = time.monotonic() - began
        slow = took > SLOW + SLOW_PER_QUEUE * len(queues) + SLOW_PER_JOB * len(jobs)
        if not jobs:
            self._runs = min(limit, max(runs, 64))
            if slow:
                await self._check_cost(queues, lowest, arrival, took)
            return []
        if slow:  # checked by the next claim: if the check failed now, these jobs would be lost
            self._slow = (queues, lowest, arrival, took)
        if node == self._node:
            self._newest = token
        if self._shared:
            # claims for other nodes: a clock that goes back must not repeat a token
            self._shared.newest = max(self._shared.newest, token)
        # lock about as many runs next time as were used, more if they did not suffice
        self._runs = max(FEWEST_RUNS, locked + locked // 4 + 4) if len(jobs) == limit else runs * 4
        return jobs

    def notify(self, queue: str | None) -> None:
        """Wake the worker: jobs were enqueued in a queue, or may have been in any."""
        if queue is None or self._scope.serves(queue):
            self._scope.notify(queue)
            self._wakeup.wake()

    def forget(self) -> None:
        """Drop what was seen through a replaced connection: the next one may lead to another server."""
        self._scope.clear()
        self._scope.arrival = 0
        self._claims.forget()
        self._slow = None
        self._counted = -math.inf

    async def _release_unconfirmed(self) -> None:
        """Release jobs of a claim whose reply was lost. They were not started, so no attempt is charged.

        The server may execute the claim late, so this is repeated until the lease was found or would have expired.
        """
        row = await self._session.fetchrow(self._sql["release_unconfirmed"], self._node, self._newest)
        if row["leases"]:
            self._uncertain_until = 0.0
        elif self._uncertain_until == math.inf:
            self._uncertain_until = time.monotonic() + self._lease

    async def _periodic_work(self) -> bool:
        """Find what a claim does not see: ended holds, due jobs, rows below the watermarks, new queues.

        Return whether the queues were read.
        """
        if self._holds.stale and not self._shared:  # shared connections: the control plane refreshes the holds
            free = set(self._holds.free)
            self._wakeup.remind(await self._holds.refresh())
            if not free.issuperset(self._holds.free):
                self.forget()  # jobs of a kind that was on hold may be below the watermarks
        if time.monotonic() - self._promoted >= PROMOTE:
            await self._promote()
        if self._slow:
            slow, self._slow = self._slow, None
            await self._check_cost(*slow)
        swept = time.monotonic() - self._swept >= SWEEP and self._scope.restart()
        if swept:
            self._swept = time.monotonic()
        find = swept or self._scope.find_due()  # a busy node must also find new queues
        if find:
            await self._find_queues(recount=swept)
        return find

    async def _promote(self) -> None:
        self._promoted = time.monotonic()
        row = await self._session.fetchrow(self._sql["promote"], self._scope.named, 1000)
        self._scope.arrival = row["arrival"]
        self._wakeup.expect(0.0 if row["promoted"] >= 1000 else row["due_in"])

    async def _find_queues(self, *, recount: bool = False) -> bool:
        """Read the queues; return whether another claim may find more than one before it.

        Where there are many, those with jobs are read at once; ``recount``: first count whether there are many.
        """
        began, scope = time.monotonic(), self._scope
        known = set(scope.queues)
        few = 0 if scope.many and not recount else FEW
        names, many, added = await self._session.fetchrow(self._sql["queues"], scope.named, few)
        scope.set_queues(names, many)
        scope.found(time.monotonic() - began)
        return added > 0 or not known.issuperset(scope.queues)

    async def _check_cost(self, queues: Sequence[str], lowest: dict[str, int], arrival: int, took: float) -> None:
        """A claim was slow: if it walked over what it could not take, let the next ones start above it.

        What was counted lately is not counted again: that costs as much as the claim.
        """
        began = time.monotonic()
        if unknown := self._scope.unknown(queues):
            if began - self._counted > COUNT_TTL:
                walked = await self._session.fetchval(self._sql["walked"], unknown, self._holds.free)
                if walked > EXPENSIVE:
                    self._counted = began
            if began - self._counted <= COUNT_TTL:
                # less than before, if the connection was replaced meanwhile
                self._scope.raise_floors(lowest, min(arrival, self._scope.arrival), took + time.monotonic() - began)
