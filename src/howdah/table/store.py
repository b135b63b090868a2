"""The store of one user table. Each method passes parameters to a statement; the decisions are in SQL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any

import asyncpg
import msgspec

from howdah import telemetry
from howdah.job import Job
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database, Session
from howdah.postgres.sql import columns
from howdah.store import Transaction
from howdah.table.ack import RowAcks, RowOutcome
from howdah.table.budget import Key
from howdah.table.claim import ClaimedRows, RowClaims, TableWakeup
from howdah.table.claim_hook import Admitted, ClaimGate, ClaimHook
from howdah.table.execution_log import ExecutionLogs
from howdah.table.plan import TablePlan
from howdah.table.rejected import RejectionNotes, split
from howdah.table.reset import RowResets
from howdah.table.statement import Where
from howdah.table.transact import RowTransactions

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
MOST_OVERSIZED = 10
REFUSED = "RowRefused"  # Error of an attempt whose outcome the table rejected.
CLOSE_TIMEOUT = 2.0
"""Timeout in seconds for writing the last notes when a node ends."""


class TableStore:
    """Claims rows of one table and records their outcomes, for one node."""

    job_log = None

    def __init__(
        self, database: Database, plan: TablePlan, *, pool: asyncpg.Pool, gate: ClaimGate | None = None
    ) -> None:
        options = plan.options
        self._plan = plan
        self._pool = pool
        self._name = options.name
        self._claims = Session(database, "claim rows")
        self._acks = Session(database, "ack")
        self._resets = Session(database, "reset")
        self._wakeup = TableWakeup(options.poll)
        self.notes = RejectionNotes(options.name)
        self._outcomes = RowAcks(plan, self._acks, self.notes)
        self._claiming = RowClaims(plan, self._claims, self.notes, self._release)
        self._resetting = RowResets(plan, self._resets, self.notes, self._outcomes)
        self._claim_hook = ClaimHook(gate.may_claim) if gate else None
        self.admitted = Admitted(self.wake) if gate and gate.one_by_one else None
        self._held: dict[int, set[Any]] = {}
        self._reserved: set[Key] = set()
        self._claimed = 0
        self._since = time.monotonic()
        self.on_limit: Callable[[], None] = lambda: None
        """Called when there is nothing more to claim, ever."""
        self.execution_logs = ExecutionLogs(self)
        self._transact = RowTransactions(plan, pool, self.execution_logs)
        if plan.budget:
            plan.budget.watchers.append(self.wake)

    # ---------------------------------------------------------------- called by the worker

    async def claim(self, limit: int, room: Mapping[str, int]) -> list[Job]:
        """Claim up to ``limit`` rows for this node; the whole table is one queue, so ``room`` is not used."""
        return await self.claim_for(None, limit)

    async def claim_for(self, worker: str | None, limit: int) -> list[Job]:
        """Claim up to ``limit`` rows for the remote worker of this name; ``None``: for this node."""
        limit = self._within_total(limit)
        if limit <= 0:
            self.on_limit()
            return []
        if self.admitted:
            return []  # until their hooks have run; then it is woken
        answer = await self._claim_hook.ask() if self._claim_hook else True
        if answer is False:
            return []
        if self.admitted is not None:
            limit = 1
        rows = await self._claiming.claim(limit, answer if isinstance(answer, Where) else None, worker)
        if self._claiming.more:
            self._wakeup.wake()
        if not rows:
            await self._report_oversized()
        if self.admitted is not None:
            self.admitted.add([(row.token, row.id) for row in rows])
        return self._take(rows)

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        accepted: list[Ack] = []
        locked: set[Key] = set()
        if acks:
            unwritten = await self.execution_logs.finish([(ack.job.token, ack.job.id) for ack in acks], self._name)
            outcomes = [
                RowOutcome(ack.job.id, ack.job.token, STATES[ack.outcome], _delay(ack), _message(ack))
                for ack in acks
                if (ack.job.token, ack.job.id) not in unwritten
            ]
            recorded, locked = await self._outcomes.record(outcomes)
            locked |= unwritten
            self._claiming.ended()
            accepted = [ack for ack in acks if (ack.job.token, ack.job.id) in recorded]
            for ack in accepted:
                state, refusal = recorded[ack.job.token, ack.job.id]
                if refusal is not None:
                    ack.outcome, ack.error, ack.message = Outcome.FAILED, REFUSED, refusal
                elif state == "canceled":  # Another caller claimed it meanwhile.
                    ack.outcome = Outcome.CANCELLED
                elif ack.outcome in (Outcome.RETRY, Outcome.SNOOZED):
                    self._wakeup.expect(ack.delay)
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
        self._claiming.release_later({token for token, _ in locked})
        self.disown({*tokens})
        return released

    async def rest(self) -> None:
        await self._wakeup.rest()

    def wake(self) -> None:
        self._wakeup.wake()
        if self._claim_hook:
            self._claim_hook.interrupt()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        await self._transact.run(job, body)

    async def transact_batch(self, body: Callable[[Transaction], Awaitable[Sequence[Ack]]]) -> Sequence[Ack]:
        return await self._transact.run_batch(body)

    # ---------------------------------------------------------------- called by the source

    def held(self, tokens: Sequence[int]) -> list[Key]:
        """Return the rows held under these leases; safe to call from another thread."""
        return [(token, id) for token in tokens for id in list(self._held.get(token, ()))]

    def holds(self, key: Key) -> bool:
        """Return whether this row is held under this lease."""
        return key[1] in self._held.get(key[0], ())

    def forget(self, key: Key, *, unstarted: bool = False) -> None:
        """Remove a row that is no longer held; free the reservation of an attempt that never started."""
        if ids := self._held.get(key[0]):
            ids.discard(key[1])
        if self.admitted is not None:
            self.admitted.remove(key)
        if unstarted:
            self.free(key)

    def disown(self, tokens: Set[int]) -> None:
        """Remove the rows held under these leases: another component tracks them."""
        if self.admitted is not None:
            self.admitted.remove_leases(tokens)
        for token in tokens:
            self._held.pop(token, None)

    def free(self, key: Key) -> None:
        """Free the reservation of this row."""
        if key in self._reserved and self._plan.budget:
            self._reserved.discard(key)
            self._plan.budget.free(key)

    def settle(self, tokens: Set[int], running: Set[Key]) -> None:
        """Remove lost leases, and free the reservations of their rows unless they still run."""
        for token in [token for token in self._held if token not in tokens]:
            del self._held[token]
        for key in [key for key in self._reserved if key not in running and not self.holds(key)]:
            self.free(key)
        self.execution_logs.keep(lambda key: key in running or self.holds(key))

    async def declare(self) -> None:
        """Declare the stall time of this node's rows to the other nodes, before the first claim."""
        await self._resetting.declare()

    async def reset(self, most: int) -> tuple[int, int]:
        """Reset the rows of silent workers; return the numbers requeued and failed. Safe on every node at once."""
        return await self._resetting.reset(most)

    async def cancel(self, most: int) -> int:
        """Cancel the waiting rows with ``cancel`` set; return how many. Safe on every node at once."""
        return await self._resetting.cancel(most)

    async def expire(self, keys: Sequence[Key], session: Session) -> None:
        """Expire the leases on these rows now."""
        await self._resetting.expire(keys, session)

    async def fail(self, key: Key, message: str, session: Session) -> bool:
        """Fail a processing row whose heartbeat is rejected; return whether the table accepts that."""
        return await self._outcomes.fail(key[1], key[0], message, session)

    async def log(self, rows: Sequence[tuple[Key, str]]) -> set[Key]:
        """Write the execution logs of running attempts; return those whose rows are locked now."""
        written = [(id, token, entries) for (token, id), entries in rows]
        statement = self._plan.sql["log"]
        found, refused = await split(written, lambda part: self._acks.fetch(statement, *columns(part, 3)))
        self.notes.add("log", [(each[0], error) for each, error in refused])
        return {key for key, _ in rows} & {(row["token"], self._plan.id(row["id"])) for row in found if row["locked"]}

    async def close(self) -> None:
        """Close the connections."""
        if self._plan.budget:
            self._plan.budget.watchers.remove(self.wake)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._resetting.record_rejections()
        except Exception as error:
            log.warning("could not record the rejected rows of table %s: %s", self._name, error)
        for session in (self._claims, self._acks, self._resets):
            await session.close()

    # ---------------------------------------------------------------- inside

    def _within_total(self, most: int) -> int:
        options = self._plan.options
        if options.max_active_time and time.monotonic() - self._since >= options.max_active_time:
            return 0
        return min(most, options.total_jobs - self._claimed) if options.total_jobs else most

    def _take(self, rows: Sequence[ClaimedRows]) -> list[Job]:
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
        """Release rows; return how many were released, and the keys of those that are locked."""
        written, locked = await self._outcomes.record([RowOutcome(id, token, "queued") for token, id in keys])
        return len(written), locked

    async def _report_oversized(self) -> None:
        if self._plan.budget_use is None or not self._plan.budget_use.may_warn():
            return
        statement, values = self._plan.oversized()
        if rows := await self._claims.fetch(statement, MOST_OVERSIZED, *values):
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
