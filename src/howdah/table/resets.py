"""Resets: takes back the rows of silent workers, cancels unwanted rows, and tells the doctor of refused ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from howdah.pg.database import Session, columns
from howdah.table.budget import Key
from howdah.table.declaration import Declarations
from howdah.table.outcomes import Outcomes
from howdah.table.plan import Plan
from howdah.table.refusal import MOST_NOTED, Aside, Dropped, Notes, is_passing, is_refusal, message_of, split
from howdah.table.silence import WATCHED_FROM, Silence, Silent, gap_after, look_every

MOST_WATCHED = 5000
TIMEOUT = 60.0
"""Seconds; without an index a look reads the whole table."""
SLOW = 0.1
EASE = 20.0
"""A look that takes longer than so many seconds is not repeated before this many times as long."""


class Resets:
    """The upkeep of one table on one node. Safe on every node at once."""

    def __init__(self, plan: Plan, session: Session, notes: Notes, outcomes: Outcomes) -> None:
        self._plan = plan
        self._session = session
        self._notes = notes
        self._outcomes = outcomes
        self._silence = Silence(plan.options.heartbeat, look_every(plan.options.stalled_after))
        self._declarations = Declarations(plan, session)
        self._aside = Aside()
        self._uncancelled = Aside()
        self._over: list[Silent] = []
        self._look_at = 0.0

    async def declare(self) -> None:
        """Declare the stall time of this node's rows."""
        await self._declarations.declare()

    async def reset(self, most: int) -> tuple[int, int]:
        """Take back up to ``most`` rows: how many went back, how many failed."""
        if not self._over:
            await self.tell()
            self._over = await self._look()
        batch, self._over = self._over[:most], self._over[most:]
        if not batch:
            return 0, 0
        rows, refused = await split(batch, self._send)
        by_id = {each.id: each for each in batch}
        refused += [(by_id[self._plan.id(row["id"])], Dropped()) for row in rows if not row["done"]]
        failed = sum(row["done"] and row["state"] == "failed" for row in rows)
        back = sum(row["done"] for row in rows) - failed
        for row in rows:
            self._silence.forget(self._plan.id(row["id"]), by_id[self._plan.id(row["id"])].token)
        self._notes.add("reset", [(each.id, error) for each, error in refused])
        for each, error in refused:
            if not is_passing(error) and await self._outcomes.fail(
                each.id, each.token, message_of(error), self._session
            ):
                failed += 1
            else:
                self._aside.put(each.id)
        return back, failed

    async def cancel(self, most: int) -> int:
        """End the waiting rows that are no longer wanted; returns how many."""
        statement, aside = self._plan.sql["cancel"], self._uncancelled.ids()
        refused: list[tuple[Any, Exception]] = []
        try:
            rows: list[Any] = await self._session.fetch(statement, most, aside, None, timeout=TIMEOUT)
        except Exception as error:
            if not is_refusal(error):
                raise
            found = await self._session.fetch(self._plan.sql["unwanted"], most, aside, timeout=TIMEOUT)

            async def send(ids: Sequence[Any]) -> list[Any]:
                return await self._session.fetch(statement, most, [], list(ids), timeout=TIMEOUT)

            rows, refused = await split([self._plan.id(row["id"]) for row in found], send)
        refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if not row["done"]]
        for id, _ in refused:
            self._uncancelled.put(id)
        self._notes.add("cancel", refused)
        return sum(row["done"] for row in rows)

    async def expire(self, keys: Sequence[Key], session: Session) -> None:
        """Let the leases on these rows run out now."""

        async def send(part: Sequence[Key]) -> list[Any]:
            ids, tokens = list({id for _, id in part}), list({token for token, _ in part})
            return await session.fetch(self._plan.sql["expire"], ids, tokens)

        _, refused = await split(list(keys), send)
        self._notes.add("expire", [(id, error) for (_, id), error in refused])

    async def tell(self) -> None:
        """Write for the doctor which rows were refused."""
        if told := self._notes.take():
            relation = self._plan.table.quoted
            await self._session.fetch(self._plan.sql["refuse"], relation, *columns(told, 3), MOST_NOTED)

    async def _look(self) -> list[Silent]:
        """Look at silent rows: at all of them, or where that takes long, at those that are watched already."""
        stall, workers, stalls = await self._declarations.stalls()
        began = time.monotonic()
        whole = began >= self._look_at
        if not whole and not self._silence.ids:
            return []
        statement, values = self._plan.silent(None if whole else self._silence.ids)
        rows = await self._session.fetch(
            statement, WATCHED_FROM, MOST_WATCHED, stall, workers, stalls, *values, timeout=TIMEOUT
        )
        took = time.monotonic() - began
        if whole and took > SLOW:
            self._look_at = time.monotonic() + EASE * took
        over = self._silence.see([{**row, "id": self._plan.id(row["id"])} for row in rows])
        if over and await self._declarations.changed():
            return []  # a node that declared a longer time since may own some of them: the next look goes by that
        aside = set(self._aside.ids())
        return [each for each in over if each.id not in aside]

    async def _send(self, batch: Sequence[Silent]) -> list[Any]:
        options = self._plan.options
        ids, tokens, heard, looked = columns(batch, 4)
        values = (options.max_resets, options.reset_message)
        gap = gap_after(options.stalled_after)
        return await self._session.fetch(
            self._plan.sql["reset"], ids, tokens, heard, max(looked), gap, *values, timeout=TIMEOUT
        )
