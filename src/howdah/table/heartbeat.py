"""The heartbeat of a table: one statement for all rows that a node holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from howdah.node.heartbeat import LeaseHolder
from howdah.postgres.database import Session
from howdah.table.budget import Key
from howdah.table.plan import TablePlan
from howdah.table.rejected import Dropped, message_of, split
from howdah.table.store import TableStore

LOST = "the row was deleted, requeued or taken back"
UNHEARD = "the table refuses its heartbeat"
SOON = 0.5
"""Seconds until the next heartbeat while some rows are locked or rejected."""
GIVEN_UP = 0.4
"""Fraction of the stall time after which a row with rejected heartbeats is failed: before other nodes reset it."""


class TableHeartbeat:
    """Renews the rows this node holds, and learns which are lost or to be cancelled."""

    def __init__(self, plan: TablePlan, store: TableStore, holder: LeaseHolder, *, lease: float | None = None) -> None:
        self._plan = plan
        self._store = store
        self._holder = holder
        # A locked table must not delay the node's other heartbeats, on which the leases of jobs depend.
        self._patience = max(1.0, min(plan.options.stalled_after, lease or plan.options.stalled_after) / 6)
        self._refused: dict[Key, float] = {}
        """Rows whose heartbeats are rejected, and since when."""
        self.statement = plan.sql["heartbeat"]
        self.again: float | None = None
        """Seconds until the next heartbeat, if it is due earlier than usual."""

    async def __call__(self, session: Session) -> Callable[[], None]:
        tokens, at = self._holder.tokens(), time.monotonic()
        held = self._store.held(tokens)
        rows: list[Any] = []
        refused: list[tuple[Any, Exception]] = []
        if held:

            async def beat(ids: Sequence[Any]) -> list[Any]:
                left = self._patience - (time.monotonic() - at)
                return await session.fetch(self.statement, list(ids), tokens, timeout=max(0.1, left))

            rows, refused = await split(list({id for _, id in held}), beat)
            refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if row["free"] and not row["beat"]]
        known = {(row["token"], self._plan.id(row["id"])) for row in rows}
        unwanted = [self._plan.id(row["id"]) for row in rows if row["cancel"]]
        # A locked row is renewed as soon as it is unlocked, before a reset could count it as silent.
        self.again = SOON if refused or any(not row["free"] for row in rows) else None
        unheard = await self._unheard(held, refused, at, session)
        known |= {*self._refused, *unheard}

        def heed() -> None:
            holder, store = self._holder, self._store
            holder.renewed(tokens, at)
            # Rows acked since the statement was sent are no longer held, but not lost.
            lost = [key for key in held if key not in known and store.holds(key)]
            for key in [*lost, *unheard]:
                store.forget(key)
            if lost:
                holder.lose_jobs(lost, LOST)
            if unheard:
                holder.lose_jobs(unheard, UNHEARD)
            if unwanted:
                holder.cancel(unwanted)
            running = {(attempt.job.token, attempt.job.id) for attempt in holder.running}
            store.settle(set(holder.tokens()), running)

        return heed

    async def _unheard(
        self, held: Sequence[Key], refused: Sequence[tuple[Any, Exception]], at: float, session: Session
    ) -> list[Key]:
        """Note the rows whose heartbeat is rejected; fail and return those that will soon count as silent."""
        errors = dict(refused)
        self._store.notes.add("heartbeat", refused)
        keys = [key for key in held if key[1] in errors]
        self._refused = {key: self._refused.get(key, at) for key in keys}
        over = [key for key in keys if at - self._refused[key] >= GIVEN_UP * self._plan.options.stalled_after]
        for key in over:
            del self._refused[key]
            await self._store.fail(key, message_of(errors[key[1]]), session)
        return over
