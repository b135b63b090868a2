"""TableStore: a worker's view of one table of the user's. Parameters, statement, rows; decisions are in SQL."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any, Protocol

import asyncpg
import msgspec

from howdah import telemetry
from howdah.errors import LeaseLost
from howdah.job import Job
from howdah.node.registry import node_name
from howdah.outcome import Ack, Outcome
from howdah.pg.database import Database, Session, columns
from howdah.pg.interrupt import transact_uncharged
from howdah.store import Transaction
from howdah.table.budget import Key
from howdah.table.journal import Journal
from howdah.table.pause import Pause
from howdah.table.plan import Plan
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


class Gate(Protocol):
    """Who is asked before every claim."""

    async def may_claim(self) -> bool | Where: ...


class TableStore:
    """Claims, acks and waits for one table on one node."""

    def __init__(self, database: Database, plan: Plan, *, pool: asyncpg.Pool, gate: Gate | None = None) -> None:
        options = plan.options
        self._plan = plan
        self._pool = pool
        self._gate = gate
        self._name = options.name
        self._claims = Session(database, "claim rows")
        self._acks = Session(database, "ack")
        self._resets = Session(database, "reset")
        self._pause = Pause(options.poll)
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
        said = await self._gate.may_claim() if self._gate else True
        if said is False:
            return []
        if self._plan.budget is None:
            return await self._claim(most, said, name)
        async with self._plan.budget.turn:
            return await self._claim(most, said, name)

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        accepted: list[Ack] = []
        if acks:
            await self._log_rest([(ack.job.token, ack.job.id) for ack in acks])
            rows = [(ack.job.id, ack.job.token, STATES[ack.outcome], _delay(ack), _message(ack)) for ack in acks]
            states = await self._record(rows)
            accepted = [ack for ack in acks if (ack.job.token, ack.job.id) in states]
            for ack in accepted:
                if states[ack.job.token, ack.job.id] == "canceled":  # somebody asked for it meanwhile
                    ack.outcome = Outcome.CANCELLED
                elif ack.outcome in (Outcome.RETRY, Outcome.SNOOZED):
                    self._pause.expect(ack.delay)
            for ack in acks:
                self.forget((ack.job.token, ack.job.id), unstarted=not ack.took)
        for token in finished:
            self._held.pop(token, None)
        return accepted

    async def release(self, tokens: Sequence[int]) -> int:
        keys = [(token, id) for token in tokens for id in self._held.get(token, ())]
        released = await self._release(keys)
        for token in tokens:
            self._held.pop(token, None)
        return released

    async def rest(self) -> None:
        await self._pause.rest()

    def wake(self) -> None:
        self._pause.ring()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        async def finish(conn: asyncpg.Connection, _result: bytes | None) -> None:
            for (token, id), entries in self.journal.pending([(job.token, job.id)]):
                await conn.fetch(self._plan.sql["log"], [id], [token], [entries])
            if await conn.fetchval(self._plan.sql["ack_in_transaction"], job.id, job.token) is None:
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

    async def reset(self, most: int) -> tuple[int, int]:
        """Take back the rows of silent workers: how many went back, how many failed. Safe on every node at once."""
        options = self._plan.options
        rows = await self._resets.fetch(
            self._plan.sql["reset"], options.stalled_after, options.max_resets, options.reset_message, most, timeout=60
        )
        failed = sum(row["state"] == "failed" for row in rows)
        return len(rows) - failed, failed

    async def cancel(self, most: int) -> int:
        """End the waiting rows that are no longer wanted; returns how many. Safe on every node at once."""
        return len(await self._resets.fetch(self._plan.sql["cancel"], most, timeout=60))

    async def log(self, rows: Sequence[tuple[Key, str]]) -> None:
        """Write the execution logs of running attempts."""
        told = [(id, token, entries) for (token, id), entries in rows]
        await self._acks.fetch(self._plan.sql["log"], *columns(told, 3))

    async def close(self) -> None:
        """Close the connections."""
        if self._plan.budget:
            self._plan.budget.watchers.remove(self.wake)
        for session in (self._claims, self._acks, self._resets):
            await session.close()

    # ---------------------------------------------------------------- inside

    def _within_total(self, most: int) -> int:
        options = self._plan.options
        if options.max_active_time and time.monotonic() - self._since >= options.max_active_time:
            return 0
        return min(most, options.total_jobs - self._claimed) if options.total_jobs else most

    async def _claim(self, most: int, said: bool | Where, name: str | None) -> list[Job]:
        statement, values = self._plan.claim(said if isinstance(said, Where) else None)
        rows = await self._claims.fetch(statement, most, name or node_name(), *values)
        if not rows:
            await self._report_oversized()
            return []
        keys = [(row["token"], self._plan.id(row["id"])) for row in rows]
        try:
            records = await self._hydrate([id for _, id in keys])
        except BaseException:
            await self._let_go(keys)
            raise
        return self._take(rows, keys, records)

    async def _hydrate(self, ids: list[Any]) -> dict[Any, bytes | str]:
        """The record of each row as JSON; as text, why one cannot be read. A row that is gone has neither."""
        try:
            rows = await self._claims.fetch(self._plan.sql["hydrate"], ids)
        except asyncpg.DataError as error:
            if len(ids) == 1:
                return {ids[0]: str(error)}
            each = [await self._hydrate([id]) for id in ids]
            return {id: record for one in each for id, record in one.items()}
        records: dict[Any, bytes | str] = {self._plan.id(row["id"]): row["record"].encode() for row in rows}
        missing = [id for id in ids if id not in records]
        if missing and self._plan.through_view:
            for row in await self._claims.fetch(self._plan.sql["present"], missing):
                records[self._plan.id(row["id"])] = f"it is not in {self._plan.view}"
        return records

    def _take(self, rows: Sequence[Any], keys: Sequence[Key], records: Mapping[Any, bytes | str]) -> list[Job]:
        options, name = self._plan.options, self._name
        jobs = []
        for row, (token, id) in zip(rows, keys, strict=True):
            record = records.get(id)
            if record is None:
                continue
            jobs.append(
                Job(
                    id,
                    name,
                    name,
                    row["failures"] + 1,
                    max(options.max_attempts, row["failures"] + 1),
                    token,
                    record if isinstance(record, bytes) else b"",
                    timeout=options.max_runtime,
                    meta_json=None if isinstance(record, bytes) else msgspec.json.encode({"unread": record}),
                    waited=row["waited"],
                )
            )
            self._held.setdefault(token, set()).add(id)
            if self._plan.budget:
                self._reserved.add((token, id))
                self._plan.budget.reserve((token, id), row["costs"])
        self._claimed += len(jobs)
        return jobs

    async def _let_go(self, keys: Sequence[Key]) -> None:
        """Claimed, but it cannot be read now: nobody is charged for that."""
        try:
            await self._release(keys)
        except Exception as error:
            log.warning(
                "could not hand back %d rows of table %s (%s); they are reset later", len(keys), self._name, error
            )

    async def _release(self, keys: Sequence[Key]) -> int:
        return len(await self._record([(id, token, "queued", None, None) for token, id in keys])) if keys else 0

    async def _record(self, rows: Sequence[tuple[Any, int, str, float | None, str | None]]) -> dict[Key, str]:
        said = await self._acks.fetch(self._plan.sql["ack"], *columns(rows, 5))
        return {(row["token"], self._plan.id(row["id"])): row["state"] for row in said}

    async def _log_rest(self, keys: Sequence[Key]) -> None:
        """Before an attempt is over its log is written, for afterwards the row is no longer ours."""
        if rest := self.journal.pending(keys):
            try:
                await self.log(rest)
            except Exception as error:
                log.warning("the last of %d execution logs of table %s is lost: %s", len(rest), self._name, error)

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
