"""Resets the rows of silent workers, cancels waiting rows, and records rejected ones for the doctor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from howdah.node.heartbeat import grace_of
from howdah.postgres.database import Session
from howdah.postgres.sql import columns
from howdah.table.ack import RowAcks
from howdah.table.budget import Key
from howdah.table.declaration import Declarations
from howdah.table.plan import TablePlan
from howdah.table.rejected import (
    MOST_NOTED,
    Dropped,
    RejectedRows,
    RejectionNotes,
    is_passing,
    is_rejection,
    message_of,
    split,
)

WATCHED_FROM = 0.4
"""Fraction of the stall time after which a silent row is watched."""
WATCHED_FOR = 0.5
"""Fraction of the stall time for which it is watched before it is reset: longer than a heartbeat."""
LONGEST_GAP = 0.5
"""Longest gap between two checks, as a fraction of the stall time; after a longer one, as of a frozen process, watching
begins again."""
SHORTEST_GAP = 2.0
FOREIGN = 2.0
"""Stall times after which a row of another app is reset: its own nodes seem to be gone."""


class StalledRow(NamedTuple):
    """A silent row, as read by one check."""

    id: Any
    token: int | None
    heard: float
    checked_at: float
    """Time of the check, by the server's clock."""


class _Seen(NamedTuple):
    heard: float
    first: float
    last: float


def check_interval(stall: float) -> float:
    """Return the seconds between two checks by a node or control plane that declared this stall time.

    >>> check_interval(30.0), check_interval(2.0)
    (2.0, 0.5)
    """
    return min(2.0, stall / 4)


def gap_after(stall: float) -> float:
    """Return the longest allowed gap, in seconds, between two checks of a row with this stall time.

    >>> gap_after(30.0), gap_after(1.0)
    (15.0, 2.0)
    """
    return max(SHORTEST_GAP, LONGEST_GAP * stall)


class StallDetector:
    """The silent rows of one table that one node watches. All times are the server's."""

    def __init__(self, heartbeat: float | None, every: float) -> None:
        self._heartbeat = heartbeat or 0.0
        self._least_gap = 2 * every
        """Checks that are ``every`` seconds apart must also suffice for rows with a shorter stall time of their own."""
        self._seen: dict[tuple[Any, int | None], _Seen] = {}

    @property
    def ids(self) -> list[Any]:
        """The watched rows."""
        return [id for id, _ in self._seen]

    def see(self, rows: Sequence[Any]) -> list[StalledRow]:
        """Add the silent rows of a check; return those to reset. Rows not among them had a heartbeat or were locked."""
        before, self._seen, over = self._seen, {}, []
        for row in rows:
            key, now, heard, stall = (row["id"], row["token"]), row["now"], row["heard"], row["stall"]
            seen, first = before.get(key), now
            if seen and seen.heard == heard and 0 <= now - seen.last <= max(gap_after(stall), self._least_gap):
                first = seen.first
            self._seen[key] = _Seen(heard, first, now)
            # No heartbeat ever, or marked as expired: no worker has it.
            expired = heard <= 0
            watched = now - first >= max(WATCHED_FOR * stall, self._heartbeat)
            if expired or (watched and row["silent"] >= stall * (1 if row["own"] else FOREIGN)):
                over.append(StalledRow(row["id"], row["token"], heard, now))
        return over

    def forget(self, id: Any, token: int | None) -> None:
        """Stop watching this row."""
        self._seen.pop((id, token), None)


MOST_WATCHED = 5000
TIMEOUT = 60.0
"""Timeout in seconds; without an index a check reads the whole table."""
SLOW = 0.1
SLOW_FACTOR = 20.0
"""A check that takes longer than ``SLOW`` seconds is repeated after ``SLOW_FACTOR`` times its duration or later."""


class RowResets:
    """Maintenance of one table on one node. Safe on every node at once."""

    def __init__(self, plan: TablePlan, session: Session, notes: RejectionNotes, outcomes: RowAcks) -> None:
        self._plan = plan
        self._session = session
        self._notes = notes
        self._outcomes = outcomes
        self._stalls = StallDetector(plan.options.heartbeat, check_interval(plan.options.stalled_after))
        self._declarations = Declarations(plan, session)
        self._rejected = RejectedRows()
        self._uncancelled = RejectedRows()
        self._over: list[StalledRow] = []
        self._check_all_at = 0.0

    async def declare(self) -> None:
        """Declare the stall time of this node's rows."""
        await self._declarations.declare()

    async def reset(self, most: int) -> tuple[int, int]:
        """Reset up to ``most`` rows; return how many were requeued and how many failed."""
        if not self._over:
            await self.record_rejections()
            self._over = await self._find_stalled()
        batch, self._over = self._over[:most], self._over[most:]
        if not batch:
            return 0, 0
        rows, refused = await split(batch, self._send)
        by_id = {each.id: each for each in batch}
        refused += [(by_id[self._plan.id(row["id"])], Dropped()) for row in rows if not row["done"]]
        failed = sum(row["done"] and row["state"] == "failed" for row in rows)
        back = sum(row["done"] for row in rows) - failed
        for row in rows:
            self._stalls.forget(self._plan.id(row["id"]), by_id[self._plan.id(row["id"])].token)
        self._notes.add("reset", [(each.id, error) for each, error in refused])
        for each, error in refused:
            if not is_passing(error) and await self._outcomes.fail(
                each.id, each.token, message_of(error), self._session
            ):
                failed += 1
            else:
                self._rejected.put(each.id)
        return back, failed

    async def cancel(self, most: int) -> int:
        """Cancel the waiting rows with ``cancel`` set; return how many."""
        statement, aside = self._plan.sql["cancel"], self._uncancelled.ids()
        refused: list[tuple[Any, Exception]] = []
        try:
            rows: list[Any] = await self._session.fetch(statement, most, aside, None, timeout=TIMEOUT)
        except Exception as error:
            if not is_rejection(error):
                raise
            found = await self._session.fetch(self._plan.sql["rows_to_cancel"], most, aside, timeout=TIMEOUT)

            async def send(ids: Sequence[Any]) -> list[Any]:
                return await self._session.fetch(statement, most, [], list(ids), timeout=TIMEOUT)

            rows, refused = await split([self._plan.id(row["id"]) for row in found], send)
        refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if not row["done"]]
        for id, _ in refused:
            self._uncancelled.put(id)
        self._notes.add("cancel", refused)
        return sum(row["done"] for row in rows)

    async def expire(self, keys: Sequence[Key], session: Session) -> None:
        """Expire the leases on these rows now."""

        async def send(part: Sequence[Key]) -> list[Any]:
            ids, tokens = list({id for _, id in part}), list({token for token, _ in part})
            return await session.fetch(self._plan.sql["expire"], ids, tokens)

        _, refused = await split(list(keys), send)
        self._notes.add("expire", [(id, error) for (_, id), error in refused])

    async def record_rejections(self) -> None:
        """Store the rejected rows for the doctor."""
        if rejections := self._notes.take():
            relation = self._plan.table.quoted
            await self._session.fetch(
                self._plan.sql["record_rejections"], relation, *columns(rejections, 3), MOST_NOTED
            )

    async def _find_stalled(self) -> list[StalledRow]:
        """Read the silent rows: all, or where that takes long, only those already watched."""
        stall, workers, stalls = await self._declarations.stalls()
        began = time.monotonic()
        whole = began >= self._check_all_at
        if not whole and not self._stalls.ids:
            return []
        statement, values = self._plan.silent(None if whole else self._stalls.ids)
        rows = await self._session.fetch(
            statement, WATCHED_FROM, MOST_WATCHED, stall, workers, stalls, *values, timeout=TIMEOUT
        )
        took = time.monotonic() - began
        if whole and took > SLOW:
            self._check_all_at = time.monotonic() + SLOW_FACTOR * took
        over = self._stalls.see([{**row, "id": self._plan.id(row["id"])} for row in rows])
        if over and await self._declarations.changed():
            return []  # A node that has since declared a longer time may own some of them: the next check uses that.
        if not over:
            return []
        grace = grace_of(self._plan.options.stalled_after)
        tokens = [each.token for each in over if each.token is not None]
        rows = await self._session.fetch(self._plan.sql["unrenewable"], tokens, grace, timeout=TIMEOUT)
        aside, excused = set(self._rejected.ids()), {row["token"] for row in rows}
        return [each for each in over if each.id not in aside and each.token not in excused]

    async def _send(self, batch: Sequence[StalledRow]) -> list[Any]:
        options = self._plan.options
        ids, tokens, heard, checked = columns(batch, 4)
        values = (options.max_resets, options.reset_message)
        gap = gap_after(options.stalled_after)
        return await self._session.fetch(
            self._plan.sql["reset"], ids, tokens, heard, max(checked), gap, *values, timeout=TIMEOUT
        )
