"""TableStore: a worker's view of one table of the user's. Parameters, statement, rows; decisions are in SQL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any, Protocol

import asyncpg
import msgspec

from howdah import telemetry
from howdah.errors import LeaseLost, Poison
from howdah.job import Job
from howdah.outcome import Ack, Outcome
from howdah.pg.database import Database, Session, columns
from howdah.pg.interrupt import transact_uncharged
from howdah.store import Transaction
from howdah.table.budget import Key
from howdah.table.claims import Claimed, Claims
from howdah.table.journal import Journal
from howdah.table.outcomes import Outcomes, Told
from howdah.table.pause import Pause
from howdah.table.plan import Plan
from howdah.table.question import Question
from howdah.table.refusal import Dropped, Notes, split
from howdah.table.resets import Resets
from howdah.table.where import Where

log = logging.getLogger("howdah")

STATES = {
    Outcome.OK: "completed",
    Outcome.FAILED: "failed",
    Outcome.POISON: "failed",
    Outcome.CANCELLED: "canceled",
    Outcome.RETRY: "errored",
    Outcome.SNOOZED: "queued",
    Outcome.RELEASED: "queued",
}
IDLE = 1.0
"""Leases after which the server ends a transaction nobody drives any more, as when its process is frozen."""
MOST_OVERSIZED = 10
REFUSED = "RowRefused"
"""Error of an attempt whose outcome the table refused."""
FAREWELL = 2.0
"""Seconds to write the last notes in when a node ends."""


class Gate(Protocol):
    """Asked before every claim."""

    async def may_claim(self) -> bool | Where: ...


class TableStore:
    """Claims, acks and waits for one table on one node."""

    def __init__(self, database: Database, plan: Plan, *, pool: asyncpg.Pool, gate: Gate | None = None) -> None:
        options = plan.options
        self._plan = plan
        self._pool = pool
        self._name = options.name
        self._claims = Session(database, "claim rows")
        self._acks = Session(database, "ack")
        self._resets = Session(database, "reset")
        self._pause = Pause(options.poll)
        self.notes = Notes(options.name)
        self._outcomes = Outcomes(plan, self._acks, self.notes)
        self._claiming = Claims(plan, self._claims, self.notes, self._release)
        self._resetting = Resets(plan, self._resets, self.notes, self._outcomes)
        self._question = Question(gate.may_claim) if gate else None
        self._held: dict[int, set[Any]] = {}
        self._reserved: set[Key] = set()
        self._claimed = 0
        self._since = time.monotonic()
        self.spent: Callable[[], None] = lambda: None
        """Called when there is nothing more to claim, ever."""
        self.journal = Journal(self)
        if plan.budget:
            plan.budget.watchers.append(self.wake)

    # ---------------------------------------------------------------- what a worker asks

    async def claim(self, most: int, room: Mapping[str, int], *, name: str | None = None) -> list[Job]:
        """Take up to ``most`` rows; ``name``: for a worker that is called so, not for this node."""
        most = self._within_total(most)
        if most <= 0:
            self.spent()
            return []
        said = await self._question.ask() if self._question else True
        if said is False:
            return []
        rows = await self._claiming.claim(most, said if isinstance(said, Where) else None, name)
        if self._claiming.more:
            self._pause.ring()
        if not rows:
            await self._report_oversized()
        return self._take(rows)

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        accepted: list[Ack] = []
        locked: set[Key] = set()
        if acks:
            unwritten = await self.journal.finish([(ack.job.token, ack.job.id) for ack in acks], self._name)
            told = [
                Told(ack.job.id, ack.job.token, STATES[ack.outcome], _delay(ack), _message(ack))
                for ack in acks
                if (ack.job.token, ack.job.id) not in unwritten
            ]
            recorded, locked = await self._outcomes.record(told)
            locked |= unwritten
            self._claiming.ended()
            accepted = [ack for ack in acks if (ack.job.token, ack.job.id) in recorded]
            for ack in accepted:
                state, refusal = recorded[ack.job.token, ack.job.id]
                if refusal is not None:
                    ack.outcome, ack.error, ack.message = Outcome.FAILED, REFUSED, refusal
                elif state == "canceled":  # somebody asked for it meanwhile
                    ack.outcome = Outcome.CANCELLED
                elif ack.outcome in (Outcome.RETRY, Outcome.SNOOZED):
                    self._pause.expect(ack.delay)
            for ack in acks:
                key = (ack.job.token, ack.job.id)
                ack.postponed = key in locked
                if not ack.postponed:
                    self.forget(key, unstarted=not ack.took)
        for token in {*finished} - {token for token, _ in locked}:
            self._held.pop(token, None)
        return accepted

    async def release(self, tokens: Sequence[int]) -> int:
        released, locked = await self._release(self.held(tokens))
        self._claiming.doubt({token for token, _ in locked})
        for token in tokens:
            self._held.pop(token, None)
        return released

    async def rest(self) -> None:
        await self._pause.rest()

    def wake(self) -> None:
        self._pause.ring()
        if self._question:
            self._question.interrupt()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        async def finish(conn: asyncpg.Connection, _result: bytes | None) -> None:
            for (token, id), entries in self.journal.pending([(job.token, job.id)]):
                await conn.fetch(self._plan.sql["log_in_transaction"], [id], [token], [entries])
            if await conn.fetchval(self._plan.sql["ack_in_transaction"], job.id, job.token) is None:
                if await conn.fetchval(self._plan.sql["held"], job.id, job.token) is not None:
                    raise Poison(str(Dropped()))
                raise LeaseLost(
                    f"row {job.id} of table {self._name} is lost; everything its handler wrote is rolled back"
                )

        await transact_uncharged(self._pool, IDLE * self._plan.options.stalled_after, body, finish)

    # ---------------------------------------------------------------- what the front asks

    def held(self, tokens: Sequence[int]) -> list[Key]:
        """The rows held under these leases; safe to call from another thread."""
        return [(token, id) for token in tokens for id in list(self._held.get(token, ()))]

    def holds(self, key: Key) -> bool:
        """Whether this row is held under this lease."""
        return key[1] in self._held.get(key[0], ())

    def forget(self, key: Key, *, unstarted: bool = False) -> None:
        """This row is no longer held; what an attempt reserved that never started is free."""
        if ids := self._held.get(key[0]):
            ids.discard(key[1])
        if unstarted:
            self.free(key)

    def disown(self, tokens: Set[int]) -> None:
        """Somebody else remembers the rows held under these leases."""
        for token in tokens:
            self._held.pop(token, None)

    def free(self, key: Key) -> None:
        """What this row reserved is free again."""
        if key in self._reserved and self._plan.budget:
            self._reserved.discard(key)
            self._plan.budget.free(key)

    def settle(self, tokens: Set[int], running: Set[Key]) -> None:
        """Forget leases that are lost, and free what their rows reserved unless it still runs."""
        for token in [token for token in self._held if token not in tokens]:
            del self._held[token]
        for key in [key for key in self._reserved if key not in running and not self.holds(key)]:
            self.free(key)
        self.journal.keep(lambda key: key in running or self.holds(key))

    async def declare(self) -> None:
        """Tell the other nodes how long rows of this one may be silent; before the first claim."""
        await self._resetting.declare()

    async def reset(self, most: int) -> tuple[int, int]:
        """Take back the rows of silent workers: how many went back, how many failed. Safe on every node at once."""
        return await self._resetting.reset(most)

    async def cancel(self, most: int) -> int:
        """End the waiting rows that are no longer wanted; returns how many. Safe on every node at once."""
        return await self._resetting.cancel(most)

    async def expire(self, keys: Sequence[Key], session: Session) -> None:
        """Let the leases on these rows run out now."""
        await self._resetting.expire(keys, session)

    async def fail(self, key: Key, message: str, session: Session) -> bool:
        """Fail a row that is worked on, whose heartbeat is refused; returns whether the table accepts that."""
        return await self._outcomes.fail(key[1], key[0], message, session)

    async def log(self, rows: Sequence[tuple[Key, str]]) -> set[Key]:
        """Write the execution logs of running attempts; returns those whose rows are locked now."""
        told = [(id, token, entries) for (token, id), entries in rows]

        async def send(part: Sequence[Sequence[Any]]) -> list[Any]:
            return await self._acks.fetch(self._plan.sql["log"], *columns(part, 3))

        found, refused = await split(told, send)
        self.notes.add("log", [(each[0], error) for each, error in refused])
        return {key for key, _ in rows} & {(row["token"], self._plan.id(row["id"])) for row in found if row["locked"]}

    async def close(self) -> None:
        """Close the connections."""
        if self._plan.budget:
            self._plan.budget.watchers.remove(self.wake)
        try:
            async with asyncio.timeout(FAREWELL):
                await self._resetting.tell()
        except Exception as error:
            log.warning("could not note the refused rows of table %s: %s", self._name, error)
        for session in (self._claims, self._acks, self._resets):
            await session.close()

    # ---------------------------------------------------------------- inside

    def _within_total(self, most: int) -> int:
        options = self._plan.options
        if options.max_active_time and time.monotonic() - self._since >= options.max_active_time:
            return 0
        return min(most, options.total_jobs - self._claimed) if options.total_jobs else most

    def _take(self, rows: Sequence[Claimed]) -> list[Job]:
        options, name = self._plan.options, self._name
        jobs = []
        for row in rows:
            record = row.record
            jobs.append(
                Job(
                    row.id,
                    name,
                    name,
                    row.failures + 1,
                    max(options.max_attempts, row.failures + 1),
                    row.token,
                    record if isinstance(record, bytes) else b"",
                    timeout=options.max_runtime,
                    meta_json=None if isinstance(record, bytes) else msgspec.json.encode({"unread": record}),
                    waited=row.waited,
                )
            )
            self._held.setdefault(row.token, set()).add(row.id)
            if self._plan.budget:
                self._reserved.add((row.token, row.id))
        self._claimed += len(jobs)
        return jobs

    async def _release(self, keys: Sequence[Key]) -> tuple[int, set[Key]]:
        """Hand rows back; returns how many went, and those that are locked."""
        told = [Told(id, token, "queued") for token, id in keys]
        written, locked = await self._outcomes.record(told)
        return len(written), locked

    async def _report_oversized(self) -> None:
        if self._plan.purse is None or not self._plan.purse.may_warn():
            return
        statement, values = self._plan.oversized()
        rows = await self._claims.fetch(statement, MOST_OVERSIZED, *values)
        if rows:
            ids = [self._plan.id(row["id"]) for row in rows]
            log.warning("rows of table %s are bigger than the whole budget and will never run: %s", self._name, ids)
            telemetry.emit("table.oversized", table=self._name, ids=ids)


def _delay(ack: Ack) -> float | None:
    if ack.outcome is Outcome.RELEASED:
        return ack.delay or None
    return ack.delay if ack.outcome in (Outcome.RETRY, Outcome.SNOOZED) else None


def _message(ack: Ack) -> str | None:
    if ack.outcome is Outcome.OK or ack.error is None:
        return None
    return f"{ack.error}: {ack.message}" if ack.message else ack.error
