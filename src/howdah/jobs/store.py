"""JobStore: a worker's view of the job tables. Methods are parameters, statement, rows; decisions are in SQL."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import asyncpg

from howdah.errors import LeaseLost
from howdah.job import Job
from howdah.jobs.bell import Bell
from howdah.outcome import Ack, Outcome
from howdah.pg import sql
from howdah.pg.database import Database, Session, columns
from howdah.pg.listen import Listener
from howdah.pg.transact import transact
from howdah.store import Transaction

CODES = {
    Outcome.OK: b"d",
    Outcome.FAILED: b"f",
    Outcome.POISON: b"f",
    Outcome.CANCELLED: b"c",
    Outcome.RETRY: b"r",
    Outcome.SNOOZED: b"s",
    Outcome.RELEASED: b"b",
}
OK = Outcome.OK  # looking an enum member up costs as much as a dictionary
FATES = {code.decode(): outcome for outcome, code in CODES.items() if outcome is not Outcome.POISON}
IDLE = 1.0
"""Leases after which the server ends a transaction nobody drives any more, as when its process is frozen."""
SWEEP = 1.0
"""Seconds after which a claim looks below its watermarks again, for what committed late or was handed back."""
PROMOTE = 0.05
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
    ) -> None:
        self._node = node
        self._everything = queues is None
        self._kinds = list(kinds)
        self._lease = lease
        self._pool = pool
        self._sql = sql.load("howdah.jobs", schema=database.schema)
        self._ack_in_transaction = sql.render(
            "select {schema}.ack_in_transaction($1, $2, $3, $4, $5, $6)", {"schema": database.schema}
        )
        self._claims = Session(database, "claim", on_connect=self._forget)
        self._acks = Session(database, "ack")
        self._resets = Session(database, "reset")  # of its own: a large reset must not hold up the acks
        self._listener = Listener(database, channel(database.schema), self._heard) if notify else None
        self._bell = Bell(self._claims, self._sql, queues, poll=poll, deaf=lambda: self.deaf)
        self._watermarks: dict[tuple[str, int], int] = {}
        self._swept = 0.0
        self._promoted = 0.0
        self._runs = FEWEST_RUNS
        self._turn = 0

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

    async def claim(self, most: int, room: Mapping[str, int]) -> list[Job]:
        now = time.monotonic()
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
        rows = await self._claims.fetch(
            self._sql["claim"],
            queues,
            [room.get(queue, most) for queue in queues],
            most,
            self._node,
            self._lease,
            self._kinds,
            runs,
            [queue for queue, _ in marks],
            [priority for _, priority in marks],
            list(marks.values()),
        )
        if not rows:
            self._runs = min(most, max(runs, 64))
            if self._everything and len(await self._look_for_queues()) > len(queues):
                return await self.claim(most, room)
            return []
        self._bell.awake()
        heads = 0
        jobs = []
        for id, max_attempts, args, key, timeout, meta, trace, waited, rid, *common in rows:
            if rid is not None:  # the first of a run
                priority, queue, kind, attempt, token = common
                heads += 1
                if rid > marks.get((queue, priority), 0):
                    marks[queue, priority] = rid
            jobs.append(Job(id, queue, kind, attempt, max_attempts, token, args, key, timeout, meta, trace, waited))
        # lock about as many runs next time as this time took, more when it fell short
        self._runs = max(FEWEST_RUNS, heads + heads // 4 + 4) if len(jobs) == most else runs * 4
        return jobs

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        plain, other = [], []
        for ack in acks:
            if ack.outcome is OK and ack.result is None and ack.error is None and ack.job.key is None:
                plain.append(ack)
            else:
                other.append(ack)
        accepted: list[Ack] = []
        with_plain = {ack.job.token for ack in plain}
        early = [token for token in finished if token not in with_plain]
        if other or early:  # first: they must not find their lease gone
            accepted += await self._ack_any(other, early)
        if plain:
            accepted += await self._ack_done(plain, [token for token in finished if token in with_plain])
        return accepted

    async def release(self, tokens: Sequence[int]) -> int:
        row = await self._acks.fetchrow(self._sql["release"], self._node, list(tokens))
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
        started = time.perf_counter_ns()

        async def finish(conn: asyncpg.Connection, result: bytes | None) -> None:
            took = (time.perf_counter_ns() - started) // 1000
            try:
                await conn.execute(self._ack_in_transaction, self._node, job.token, job.id, job.attempt, took, result)
            except asyncpg.PostgresError as error:
                if error.sqlstate == "HW001":
                    raise LeaseLost(f"the lease of job {job.id} is lost; everything it wrote is rolled back") from None
                raise

        await transact(self._pool, IDLE * self._lease, body, finish)

    async def close(self) -> None:
        """Close the connections."""
        for session in (self._claims, self._acks, self._resets):
            await session.close()

    async def _ack_done(self, acks: list[Ack], finished: list[int]) -> list[Ack]:
        while acks:
            tokens = list({ack.job.token for ack in acks})
            try:
                rows = await self._acks.fetch(
                    self._sql["ack_done"],
                    self._node,
                    tokens,
                    finished,
                    array([ack.job.id for ack in acks]),
                    array([ack.job.attempt for ack in acks]),
                    array([ack.took for ack in acks]),
                )
            except asyncpg.UniqueViolationError:  # a replay: the long way ignores what is already recorded
                return await self._ack_any(acks, finished)
            held = {row[0] for row in rows}
            if len(held) == len(tokens):
                return acks
            acks = [ack for ack in acks if ack.job.token in held]
            finished = [token for token in finished if token in held]
        return []

    async def _ack_any(self, acks: list[Ack], finished: list[int]) -> list[Ack]:
        rows = await self._acks.fetch(
            self._sql["ack"],
            self._node,
            *columns(
                [
                    (
                        ack.job.token,
                        ack.job.id,
                        ack.job.attempt,
                        CODES[ack.outcome],
                        ack.delay,
                        ack.took,
                        ack.result,
                        ack.error,
                        ack.message,
                        ack.traceback,
                    )
                    for ack in acks
                ],
                10,
            ),
            finished,
        )
        fates = {(token, id): fate for token, id, fate in rows}
        accepted = [ack for ack in acks if (ack.job.token, ack.job.id) in fates]
        for ack in accepted:
            fate = fates[ack.job.token, ack.job.id]
            if (
                fate != CODES[ack.outcome].decode()
            ):  # a cancel request, the last attempt, or a commit we had not heard of
                ack.outcome = FATES[fate]
            if fate in "rs":
                self._bell.expect(ack.delay)
        return accepted

    async def _look_around(self, now: float) -> None:
        """What a claim would not see by itself: jobs fallen due, rows below the watermarks, new queues."""
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
        self._bell.known = await self._claims.fetchval(self._sql["queues"])
        return self._bell.known

    def _in_turn(self) -> list[str]:
        """The queues, each time starting with the next one, so that none starves the others."""
        known = self._bell.known
        self._turn = (self._turn + 1) % len(known)
        return known[self._turn :] + known[: self._turn]

    def _heard(self, _queue: str | None) -> None:
        self._bell.ring()

    def _forget(self) -> None:
        self._watermarks.clear()


def array(numbers: list[int]) -> str:
    """Whole numbers as PostgreSQL writes an array of them.

    >>> array([1, 2])
    '{1, 2}'
    """
    return "{" + repr(numbers)[1:-1] + "}"


def channel(schema: str) -> str:
    """The notification channel of a schema."""
    return "howdah_" + hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]
