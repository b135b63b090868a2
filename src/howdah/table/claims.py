"""Claims: takes rows of one table, around those that the table refuses to have claimed."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, NamedTuple

from howdah.node.registry import node_name
from howdah.pg.database import UNSURE, Session
from howdah.table.budget import Key
from howdah.table.plan import Plan
from howdah.table.reader import Reader, Unread
from howdah.table.refusal import Aside, Dropped, Notes, is_passing, is_refusal, split
from howdah.table.where import Where

log = logging.getLogger("howdah")

ROUNDS = 20
"""Times a claim looks behind refused rows before it returns."""
RECONSIDERED = 10
"""Refused rows tried again when another row ends."""
SHARED_TIMEOUT = 1.0
"""Seconds a claim may hold up the claims of other tables that share its budget."""
MOST_UNSURE = 100
RELEASE_EVERY = 1.0


Release = Callable[[Sequence[Key]], Awaitable[tuple[int, set[Key]]]]


class Claimed(NamedTuple):
    """A claimed row."""

    id: Any
    token: int
    failures: int
    waited: float | None
    record: bytes | str
    """As JSON; as text, why it cannot be read."""


class Claims:
    """Claims rows and reads their records. ``release`` hands rows back, uncharged."""

    def __init__(self, plan: Plan, session: Session, notes: Notes, release: Release) -> None:
        self._plan = plan
        self._session = session
        self._notes = notes
        self._release = release
        self._aside = Aside()
        self._reader = Reader(plan, session)
        self._newest = 0
        """The newest token this process has had."""
        self._unsure: dict[int, float] = {}
        """Tokens of claims whose answer was lost, and until when rows may turn up under them."""
        self._released_at = float("-inf")
        self._blocked = False
        self.more = False
        """Whether the last claim ended before it had looked at every row that is due."""

    async def claim(self, most: int, extra: Where | None, name: str | None) -> list[Claimed]:
        """Take up to ``most`` rows."""
        await self._release_unsure()
        most = min(most, self._reader.most or most)
        name = name or node_name()
        budget = self._plan.budget
        if budget is None:
            rows, token = await self._take(most, extra, name, None)
        else:
            # a locked table is waited for where no other table has to wait, too
            if self._blocked:
                await self._once(0, extra, name, 0)
                self._blocked = False
            async with budget.turn:
                rows, token = await self._take(most, extra, name, SHARED_TIMEOUT if budget.shared else None)
        return await self._read(rows, token) if rows else []

    def ended(self) -> None:
        """A row has ended: one that conflicted with it may be claimed now."""
        self._aside.reconsider(RECONSIDERED)

    # ---------------------------------------------------------------- claiming

    async def _take(self, most: int, extra: Where | None, name: str, timeout: float | None) -> tuple[list[Any], int]:
        self._newest = token = await self._session.fetchval(self._plan.sql["token"], self._newest)
        self.more = refused = False
        try:
            try:
                return await self._once(most, extra, name, token, timeout=timeout), token
            except Exception as error:
                if not is_refusal(error):
                    raise
                refused = True
            return await self._around(most, extra, name, token), token
        except BaseException as error:
            self._blocked = isinstance(error, TimeoutError)
            if refused or isinstance(error, UNSURE):
                self.doubt({token})
            raise

    async def _once(
        self,
        most: int,
        extra: Where | None,
        name: str,
        token: int,
        only: Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> list[Any]:
        """Claim in one statement; what a row reserves of a budget is reserved."""
        statement, values = self._plan.claim(extra, only)
        rows = await self._session.fetch(
            statement, most, name, token, self._aside.ids() if only is None else [], *values, timeout=timeout
        )
        taken = [row for row in rows if row["taken"]]
        if self._plan.budget:
            for row in taken:
                self._plan.budget.reserve((token, self._plan.id(row["id"])), row["costs"])
        if len(taken) < len(rows):
            self._put_aside([(self._plan.id(row["id"]), Dropped()) for row in rows if not row["taken"]])
        for row in taken if len(self._aside) else ():
            self._aside.forget(self._plan.id(row["id"]))
        return taken

    async def _around(self, most: int, extra: Where | None, name: str, token: int) -> list[Any]:
        """Claim all but the rows that are refused, and those behind them."""
        taken: list[Any] = []
        tried: list[Any] = []

        async def claim(part: Sequence[Any]) -> list[Any]:
            return await self._once(len(part), extra, name, token, list(part))

        for _ in range(ROUNDS):
            statement, values = self._plan.due(extra)
            found = await self._session.fetch(
                statement, most - len(taken), None, None, [*self._aside.ids(), *tried], *values
            )
            ids = [self._plan.id(row["id"]) for row in found]
            if not ids:
                return taken
            rows, refused = await split(ids, claim)
            self._put_aside(refused)
            taken += rows
            tried += ids
            if len(taken) >= most:
                return taken
        self.more = not self._aside.full
        return taken

    def _put_aside(self, refused: Sequence[tuple[Any, Exception]]) -> None:
        for id, error in refused:
            self._aside.put(id, passing=is_passing(error))
        self._notes.add("claim", refused)

    # ---------------------------------------------------------------- reading

    async def _read(self, rows: Sequence[Any], token: int) -> list[Claimed]:
        ids = [self._plan.id(row["id"]) for row in rows]
        try:
            records = await self._reader.read(ids)
        except BaseException as error:
            await self._let_go([(token, id) for id in ids])
            if isinstance(error, Unread):
                for id in error.args[0]:
                    self._aside.put(id)
                if error.__cause__ is not None:
                    raise error.__cause__ from None
            raise
        self._free([(token, id) for id in ids if id not in records])
        return [
            Claimed(id, token, row["failures"], row["waited"], records[id])
            for row, id in zip(rows, ids, strict=True)
            if id in records
        ]

    async def _let_go(self, keys: Sequence[Key]) -> None:
        """Hand back rows that cannot be read now; no attempt is charged."""
        self._free(keys)
        try:
            _, locked = await self._release(keys)
            self.doubt({token for token, _ in locked})
        except Exception as error:
            log.warning(
                "could not hand back %d rows of table %s (%s); they are reset later",
                len(keys),
                self._plan.options.name,
                error,
            )

    # ---------------------------------------------------------------- budgets, and claims that were not answered

    def _free(self, keys: Sequence[Key]) -> None:
        if self._plan.budget:
            for key in keys:
                self._plan.budget.free(key)

    def doubt(self, tokens: Set[int]) -> None:
        """Release what these claims took as soon as possible, before it would be reset.

        Their answers were lost, or some of their rows were locked when they should have gone back.
        """
        for token in tokens:
            if self._plan.budget:
                self._free(self._plan.budget.under(token))
            if len(self._unsure) < MOST_UNSURE:
                self._unsure[token] = time.monotonic() + self._plan.options.stalled_after

    async def _release_unsure(self) -> None:
        """Release rows by the exact tokens of unanswered claims; such a claim may also commit later than expected."""
        now = time.monotonic()
        if not self._unsure or now - self._released_at < RELEASE_EVERY:
            return
        tokens = list(self._unsure)

        async def release(ids: Sequence[Any] | None) -> list[Any]:
            return await self._session.fetch(self._plan.sql["release"], tokens, ids)

        refused: list[tuple[Any, Exception]] = []
        try:
            rows = await release(None)
        except Exception as error:
            if not is_refusal(error):
                raise
            found = await self._session.fetch(self._plan.sql["unheard"], tokens)
            rows, refused = await split([self._plan.id(row["id"]) for row in found], release)
        refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if not row["done"]]
        self._notes.add("release", refused)
        self._released_at = now
        self._unsure = {token: until for token, until in self._unsure.items() if until > now}
