"""Claims rows of one table, leaving out rows whose claim the table rejects; waits between claims."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, NamedTuple

from howdah.loops import wait
from howdah.node.registry import node_name
from howdah.postgres.database import UNCERTAIN, Session
from howdah.table.budget import Key
from howdah.table.plan import TablePlan
from howdah.table.record_reader import RecordReader, UnreadableRecord
from howdah.table.rejected import Dropped, RejectedRows, RejectionNotes, is_passing, is_rejection, split
from howdah.table.statement import Where

log = logging.getLogger("howdah")

MOST_LISTED = 1000
"""Due rows listed before a claim, if others are scheduled for later; if more are due, the claim reads in its order."""
ROUNDS = 20
"""Times a claim searches beyond rejected rows before it returns."""
RECONSIDERED = 10
"""Rejected rows retried when another row ends."""
SHARED_TIMEOUT = 1.0
"""Seconds a claim may delay the claims of other tables that share its budget."""
MOST_UNCONFIRMED = 100
RELEASE_EVERY = 1.0


Release = Callable[[Sequence[Key]], Awaitable[tuple[int, set[Key]]]]


class ClaimedRows(NamedTuple):
    """A claimed row."""

    id: Any
    token: int
    failures: int
    waited: float | None
    record: bytes | str
    """The record as JSON, or as text the reason why it cannot be read."""


class RowClaims:
    """Claims rows and reads their records. ``release`` returns rows without charging an attempt."""

    def __init__(self, plan: TablePlan, session: Session, notes: RejectionNotes, release: Release) -> None:
        self._plan = plan
        self._session = session
        self._notes = notes
        self._release = release
        self._rejected = RejectedRows()
        self._reader = RecordReader(plan, session)
        self._newest = 0
        """The newest token this process has had."""
        self._unconfirmed: dict[int, float] = {}
        """Tokens of claims whose reply was lost, and until when rows may appear under them."""
        self._released_at = float("-inf")
        self._blocked = False
        self.more = False
        """True if the last claim ended before it had tried every due row."""

    async def claim(self, most: int, extra: Where | None, name: str | None) -> list[ClaimedRows]:
        """Claim up to ``most`` rows."""
        await self._release_unconfirmed()
        most = min(most, self._reader.most or most)
        name = name or node_name()
        budget = self._plan.budget
        if budget is None:
            rows, token = await self._take(most, extra, name, None)
        else:
            # Wait for a locked table only where no other table has to wait too.
            if self._blocked:
                await self._once(0, extra, name, 0)
                self._blocked = False
            async with budget.turn:
                rows, token = await self._take(most, extra, name, SHARED_TIMEOUT if budget.shared else None)
        return await self._read(rows, token) if rows else []

    def ended(self) -> None:
        """After a row ended: retry rows that conflicted with it."""
        self._rejected.reconsider(RECONSIDERED)

    # ---------------------------------------------------------------- claiming

    async def _take(self, most: int, extra: Where | None, name: str, timeout: float | None) -> tuple[list[Any], int]:
        self.more = refused = False
        due = await self._list_due(most, extra, timeout) if self._plan.lists_due else None
        if due is not None and not due:
            return [], 0
        self._newest = token = await self._session.fetchval(self._plan.sql["next_token"], self._newest)
        try:
            try:
                rows = await self._once(most, extra, name, token, due and due[: 2 * most], timeout)
                self.more = due is not None and len(rows) < most and len(due) > 2 * most
                return rows, token
            except Exception as error:
                if not is_rejection(error):
                    raise
                refused = True
            return await self._around(most, extra, name, token), token
        except BaseException as error:
            self._blocked = isinstance(error, TimeoutError)
            if refused or isinstance(error, UNCERTAIN):
                self.release_later({token})
            raise

    async def _list_due(self, most: int, extra: Where | None, timeout: float | None) -> list[Any] | None:
        """Return the due rows in the order of the claim, or ``None`` if the claim can as well read all waiting rows."""
        statement, values = self._plan.list_due(extra)
        most = max(most, MOST_LISTED)
        found = await self._session.fetch(statement, most, None, None, self._rejected.ids(), *values, timeout=timeout)
        ids = found[0]["ids"]
        return None if ids is None or len(ids) >= most else [self._plan.id(id) for id in ids]

    async def _once(
        self,
        most: int,
        extra: Where | None,
        name: str,
        token: int,
        only: Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Claim in one statement, and reserve the rows' costs in the budget."""
        statement, values = self._plan.claim(extra, only)
        rows = await self._session.fetch(
            statement, most, name, token, self._rejected.ids() if only is None else [], *values, timeout=timeout
        )
        taken = [row for row in rows if row["taken"]]
        if self._plan.budget:
            for row in taken:
                self._plan.budget.reserve((token, self._plan.id(row["id"])), row["costs"])
        if len(taken) < len(rows):
            self._skip_rejected([(self._plan.id(row["id"]), Dropped()) for row in rows if not row["taken"]])
        for row in taken if len(self._rejected) else ():
            self._rejected.forget(self._plan.id(row["id"]))
        return taken

    async def _around(self, most: int, extra: Where | None, name: str, token: int) -> list[Any]:
        """Claim all but the rejected rows, and rows beyond them."""
        taken: list[Any] = []
        tried: list[Any] = []

        async def claim(part: Sequence[Any]) -> list[Any]:
            return await self._once(len(part), extra, name, token, list(part))

        for _ in range(ROUNDS):
            statement, values = self._plan.due(extra)
            found = await self._session.fetch(
                statement, most - len(taken), None, None, [*self._rejected.ids(), *tried], *values
            )
            ids = [self._plan.id(row["id"]) for row in found]
            if not ids:
                return taken
            rows, refused = await split(ids, claim)
            self._skip_rejected(refused)
            taken += rows
            tried += ids
            if len(taken) >= most:
                return taken
        self.more = not self._rejected.full
        return taken

    def _skip_rejected(self, refused: Sequence[tuple[Any, Exception]]) -> None:
        for id, error in refused:
            self._rejected.put(id, passing=is_passing(error))
        self._notes.add("claim", refused)

    # ---------------------------------------------------------------- reading

    async def _read(self, rows: Sequence[Any], token: int) -> list[ClaimedRows]:
        ids = [self._plan.id(row["id"]) for row in rows]
        try:
            records = await self._reader.read(ids)
        except BaseException as error:
            await self._release_unread([(token, id) for id in ids])
            if isinstance(error, UnreadableRecord):
                for id in error.args[0]:
                    self._rejected.put(id)
                if error.__cause__ is not None:
                    raise error.__cause__ from None
            raise
        self._free([(token, id) for id in ids if id not in records])
        return [
            ClaimedRows(id, token, row["failures"], row["waited"], records[id])
            for row, id in zip(rows, ids, strict=True)
            if id in records
        ]

    async def _release_unread(self, keys: Sequence[Key]) -> None:
        """Release rows that cannot be read now; no attempt is charged."""
        self._free(keys)
        try:
            _, locked = await self._release(keys)
            self.release_later({token for token, _ in locked})
        except Exception as error:
            self.release_later({token for token, _ in keys})
            log.warning(
                "could not release %d rows of table %s (%s); trying again",
                len(keys),
                self._plan.options.name,
                error,
            )

    # ---------------------------------------------------------------- budgets, and claims whose reply was lost

    def _free(self, keys: Sequence[Key]) -> None:
        if self._plan.budget:
            for key in keys:
                self._plan.budget.free(key)

    def release_later(self, tokens: Set[int]) -> None:
        """Release the rows of these claims as soon as possible, before they would be reset.

        Their replies were lost, or some of their rows were locked when they should have been released.
        """
        for token in tokens:
            if self._plan.budget:
                self._free(self._plan.budget.under(token))
            if len(self._unconfirmed) < MOST_UNCONFIRMED:
                self._unconfirmed[token] = time.monotonic() + self._plan.options.stalled_after

    async def _release_unconfirmed(self) -> None:
        """Release rows by the exact tokens of claims without a reply; such a claim may also commit late."""
        now = time.monotonic()
        if not self._unconfirmed or now - self._released_at < RELEASE_EVERY:
            return
        tokens = list(self._unconfirmed)

        async def release(ids: Sequence[Any] | None) -> list[Any]:
            return await self._session.fetch(self._plan.sql["release"], tokens, ids)

        refused: list[tuple[Any, Exception]] = []
        try:
            rows = await release(None)
        except Exception as error:
            if not is_rejection(error):
                raise
            found = await self._session.fetch(self._plan.sql["unconfirmed"], tokens)
            rows, refused = await split([self._plan.id(row["id"]) for row in found], release)
        refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if not row["done"]]
        self._notes.add("release", refused)
        self._released_at = now
        self._unconfirmed = {token: until for token, until in self._unconfirmed.items() if until > now}


MOST_EXPECTED = 10_000


class TableWakeup:
    """Wait that ends with a wake-up, when a known row falls due, or after the poll interval."""

    def __init__(self, poll: float) -> None:
        self._poll = poll
        self._woken = False
        self._changed = asyncio.Event()
        self._due: list[float] = []

    def wake(self) -> None:
        """End the wait: there may be work."""
        self._woken = True
        self._changed.set()

    def expect(self, seconds: float) -> None:
        """Note that a row falls due in a number of seconds."""
        if len(self._due) < MOST_EXPECTED:
            # A little later, since the server's clock may be behind.
            heapq.heappush(self._due, time.monotonic() + seconds + 0.002)
            self._changed.set()

    async def rest(self) -> None:
        """Wait until another claim is worth it."""
        backstop = time.monotonic() + self._poll
        while not self._woken and (pause := self._until(backstop) - time.monotonic()) > 0:
            self._changed.clear()
            await wait(self._changed, pause)
        self._woken = False
        now = time.monotonic()
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)

    def _until(self, backstop: float) -> float:
        return min(backstop, self._due[0]) if self._due else backstop
