"""The heartbeat of a table: one statement for all of its rows a node works on."""

from __future__ import annotations

import time
from collections.abc import Callable

from howdah.node.beat import Holder
from howdah.pg.database import Session
from howdah.table.plan import Plan
from howdah.table.store import TableStore

LOST = "the row was deleted, requeued or taken back"


class TableBeat:
    """Says which rows are still worked on, and hears which are no longer ours or no longer wanted."""

    def __init__(self, plan: Plan, store: TableStore, holder: Holder, *, lease: float | None = None) -> None:
        self._plan = plan
        self._store = store
        self._holder = holder
        # a locked table must not hold up the other beats of this heart, on which the leases of jobs depend
        self._patience = max(1.0, min(plan.options.stalled_after, lease or plan.options.stalled_after) / 6)
        self.statement = plan.sql["heartbeat"]

    async def __call__(self, session: Session) -> Callable[[], None]:
        tokens, at = self._holder.tokens(), time.monotonic()
        held = self._store.held(tokens)
        rows = []
        if held:
            ids = list({id for _, id in held})
            rows = await session.fetch(self.statement, ids, tokens, timeout=self._patience)
        known = {(row["token"], self._plan.id(row["id"])) for row in rows}
        unwanted = [self._plan.id(row["id"]) for row in rows if row["cancel"]]

        def heed() -> None:
            holder, store = self._holder, self._store
            holder.renewed(tokens, at)
            # what was acked since the question is no longer held, and not lost
            lost = [key for key in held if key not in known and store.holds(key)]
            for key in lost:
                store.forget(key)
            if lost:
                holder.lose_jobs(lost, LOST)
            if unwanted:
                holder.cancel(unwanted)
            running = {(attempt.job.token, attempt.job.id) for attempt in holder.running}
            store.settle(set(holder.tokens()), running)

        return heed
