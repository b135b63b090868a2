"""What the state machine drives: nodes, clients and people on one database, each behind a wire that breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from howdah.errors import DatabaseUnreachable, LeaseLost, TransactionLost
from howdah.job import Job
from howdah.jobs.admin import Admin
from howdah.jobs.enqueue import EnqueueClient
from howdah.jobs.store import JobStore
from howdah.node.registry import new_node
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Session
from howdah.store import Interrupted
from kit.broken_connections import Faults, When, WiredDatabase
from kit.interleave_jobs import EMPTY, PORTRAIT, STATEMENTS
from kit.node import eventually

Errors = tuple[type[Exception], ...]
KIND = "note"
LEASE = 3600.0
"""No lease ends by itself while an example runs."""
LOST = (DatabaseUnreachable, TransactionLost, ConnectionError)
"""How those who ask hear that the wire broke."""
BROKEN_OFF = (Interrupted,)
"""How a worker hears it about the transaction of a handler: an error of any other kind would be charged."""
LAPSE = "update howdah.lease set expires_at = now() - interval '1 second' where node = $1"
FALL_DUE = """
update howdah.later set due_at = now() - interval '1 second'
    - ((select max(l.id) from howdah.later l) - id) * interval '1 microsecond'
"""
"""In the order of ids: with equal times the order of promotion, and so what a claim takes, would vary between runs."""


class ModelNode:
    """One node: what it believes to hold, and what it could not say yet."""

    def __init__(self, node: int, store: JobStore, heartbeat_session: Session) -> None:
        self.node = node
        self.store = store
        self.heartbeat_session = heartbeat_session
        self.left: dict[int, int] = {}
        """Leases, and how many of their jobs are without an outcome."""
        self.jobs: dict[tuple[int, int], Job] = {}
        self.unsaid: tuple[list[Ack], list[int]] | None = None
        """Outcomes that were sent and not answered; they are said again before anything else."""

    def take(self, jobs: Sequence[Job]) -> None:
        """These were claimed."""
        for job in jobs:
            self.left[job.token] = self.left.get(job.token, 0) + 1
            self.jobs[job.token, job.id] = job

    def count(self, jobs: Sequence[Job]) -> list[int]:
        """These attempts ended; the leases of which nothing is left."""
        finished = []
        for job in jobs:
            del self.jobs[job.token, job.id]
            self.left[job.token] -= 1
            if not self.left[job.token]:
                finished.append(job.token)
        return finished

    def lose(self, tokens: set[int]) -> None:
        """These leases are gone."""
        self.left = {token: left for token, left in self.left.items() if token not in tokens}
        self.jobs = {key: job for key, job in self.jobs.items() if key[0] not in tokens}

    def still_ours(self, acks: Sequence[Ack], finished: Sequence[int]) -> tuple[list[Ack], list[int]]:
        """What a worker says again: the rest runs elsewhere by now."""
        return (
            [ack for ack in acks if ack.job.token in self.left],
            [token for token in finished if token in self.left],
        )


class World:
    """One database and all who work on it; emptied for every example."""

    def __init__(self, dsn: str) -> None:
        self.faults = Faults()
        self._runner = asyncio.Runner()
        self._database = WiredDatabase(dsn, self.faults)
        self._conn, self._pool = self.run(self._open(dsn))
        self.sides: list[ModelNode] = []

    def run(self, doing: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await doing

        return self._runner.run(wait())

    def close(self) -> None:
        self.run(self._close_sides())
        self._conn.terminate()
        self._pool.terminate()
        self._runner.close()

    def begin(self, nodes: int) -> None:
        """Start over, with so many nodes."""
        self.run(self._begin(nodes))

    def crash(self, side: ModelNode) -> ModelNode:
        """A process dies and another one starts."""
        self.sides.remove(side)
        self.run(self._leave(side))
        return self.run(self._join())

    def attempt(
        self, doing: Callable[[], Awaitable[Any]], fault: tuple[int, When] | None, lost: Errors = LOST
    ) -> tuple[bool, Any]:
        """Do something while the wire may break, which raises one of ``lost``: whether an answer came, and which."""
        if fault:
            self.faults.arm(*fault)
        try:
            return True, self.run(doing())
        except lost:
            if self.faults.struck is None:
                raise
            self.run(self._end_of(self.faults.struck))
            return False, None
        finally:
            self.faults.disarm()

    def read_tables(self) -> dict[str, Any]:
        """What the tables say, as :meth:`kit.model.Model.portrait` has it."""
        return self.run(self._look())

    def fetch(self, statement: str, *values: Any) -> list[Any]:
        """Ask the database, by a wire that holds."""
        return list(self.run(self._conn.fetch(statement, *values)))

    def repair(self) -> str:
        """Let self-repair look at all jobs; returns what it changed, empty if nothing."""
        [row] = self.fetch("select requeued, ended, leases from howdah.repair(0)")
        return str(dict(row)) if any(row) else ""

    def wrongs(self, check: Callable[[Any], Awaitable[list[str]]]) -> list[str]:
        return list(self.run(check(self._conn)))

    # ---------------------------------------------------------------- inside

    async def _open(self, dsn: str) -> tuple[Any, Any]:
        conn = await WiredDatabase(dsn, Faults()).connect("look")
        await conn.execute("create table if not exists effect (id bigint not null, token bigint not null)")
        pool = await self._database.wired_pool(2)

        async def same() -> Any:
            return pool

        self.admin = Admin(self._database, same)
        self.client = EnqueueClient(self._database, same, None)  # type: ignore[arg-type]
        self.upkeep = Session(self._database, "prune")
        return conn, pool

    async def _begin(self, nodes: int) -> None:
        self.faults.disarm()
        await self._close_sides()
        await self._conn.execute(EMPTY + "delete from effect")
        for _ in range(nodes):
            await self._join()

    async def _join(self) -> ModelNode:
        given = (new_node(), "here:1", "1", None, [KIND], 10, [], None, 1.0)
        node = await self._conn.fetchval(STATEMENTS["register"], *given)
        store = JobStore(
            self._database, node, kinds=[KIND], queues=None, lease=LEASE, poll=1, notify=False, pool=self._pool
        )
        self.sides.append(ModelNode(node, store, Session(self._database, "heart")))
        return self.sides[-1]

    async def _end_of(self, pid: int) -> None:
        """Wait until a server process has noticed that nobody is there, and holds nothing any more."""

        async def gone() -> bool:
            return not await self._conn.fetchval("select count(*) from pg_stat_activity where pid = $1", pid)

        await eventually(gone)

    async def _leave(self, side: ModelNode) -> None:
        await side.store.close()
        await side.heartbeat_session.close()

    async def _close_sides(self) -> None:
        for side in self.sides:
            await self._leave(side)
        self.sides = []

    async def _look(self) -> dict[str, Any]:
        seen = json.loads(await self._conn.fetchval(PORTRAIT))
        seen = {name: rows or [] for name, rows in seen.items()}
        over = {id for id, *_ in seen["done"]}
        gone = {(token, id) for id, token in seen["gone"]}
        leases = [
            (token, node, lapsed, {id: n for lo, hi, n in zip(los, his, attempts, strict=True) for id in range(lo, hi)})
            for token, lapsed, los, his, attempts, node in seen["leases"]
        ]
        live = set(seen["jobs"])
        lost = [id for id, _, outcome in seen["history"] if outcome == "lost"]
        return {
            "jobs": live,
            "ready": {(id, used) for id, used in seen["ready"]},
            "later": {(id, used) for id, used in seen["later"]},
            "lease": {
                (id, attempt, token)
                for token, _, _, held in leases
                for id, attempt in held.items()
                if id in live - over and (token, id) not in gone
            },
            "done": {(id, attempt, state, node) for id, state, attempt, node in seen["done"]},
            "leases": {(token, node, lapsed, frozenset(held)) for token, node, lapsed, held in leases},
            "keys": {(key, id) for id, key in seen["keys"]},
            "requests": {id for id in seen["requests"] if id in live - over},
            "resets": {(id, lost.count(id)) for id in lost},
            "paused": set(seen["paused"]),
            "effects": sorted(row[0] for row in await self._conn.fetch("select id from effect")),
        }


async def transact(side: ModelNode, job: Job) -> str:
    """Run a handler that writes through its transaction."""

    async def body(tx: Any) -> None:
        await tx.execute("insert into effect values ($1, $2)", job.id, job.token)

    try:
        await side.store.transact(job, body)
    except LeaseLost:
        return "lost"
    return "done"


def failed(job: Job, outcome: Outcome) -> Ack:
    """An attempt that did not simply succeed."""
    if outcome in (Outcome.OK, Outcome.RELEASED):
        return Ack(job, outcome, 1)
    return Ack(job, outcome, 1, error="E", message="on purpose", delay=1000.0)


def set_back(job: Job) -> Ack:
    """An attempt whose transaction was broken off: it goes back and waits, and is not charged."""
    return Ack(job, Outcome.RELEASED, 1, delay=1000.0)
