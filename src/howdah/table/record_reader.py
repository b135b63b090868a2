"""Reads the records of claimed rows through the view, in smaller batches when that is slow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from howdah.postgres.database import Session
from howdah.table.plan import TablePlan
from howdah.table.rejected import RejectedRows, is_rejection, message_of, split

ENOUGH = 8
"""Attempts after which an unreadable row is charged even if no other row proves that the view works."""
SLOW = (TimeoutError, asyncpg.QueryCanceledError)
QUICK = 0.25
"""Fraction of the timeout within which a read counts as fast."""


class UnreadableRecord(Exception):
    """None of these rows could be read: the view may be broken, so no row is charged."""


class RecordReader:
    """Reads records. A row that cannot be read fails alone if the view works for others."""

    def __init__(self, plan: TablePlan, session: Session) -> None:
        self._plan = plan
        self._session = session
        self._unreadable = RejectedRows()
        self._read_at = float("-inf")
        # A row gets no heartbeat before its record is read.
        self._timeout = min(session.database.command_timeout, max(1.0, plan.options.stalled_after / 3))
        self.most: int | None = None
        """Rows to claim at once, so that their records can be read in time; ``None``: no limit."""

    async def read(self, ids: Sequence[Any]) -> dict[Any, bytes | str]:
        """Return the record of each row as JSON, or as text why it cannot be read. Deleted rows are left out.

        Raises :class:`UnreadableRecord` when nothing can be read, and :class:`TimeoutError` when it takes too long;
        then :attr:`most` is smaller.
        """
        began = time.monotonic()
        try:
            rows, refused = await split(ids, self._fetch, _refuses)
        except SLOW as error:
            self.most = max(1, len(ids) // 2)
            if len(ids) == 1:
                self._unreadable.put(ids[0])
                raise UnreadableRecord(ids, error) from error
            raise TimeoutError(f"reading {len(ids)} records takes too long; trying {self.most} at a time") from error
        self._adjust(time.monotonic() - began, len(ids))
        records: dict[Any, bytes | str] = {self._plan.id(row["id"]): row["record"].encode() for row in rows}
        if records:
            self._read_at = time.monotonic()
        records |= self._judge(refused, works=bool(records))
        for id in ids:
            self._unreadable.forget(id)
        missing = [id for id in ids if id not in records]
        if missing and self._plan.through_view:
            for row in await self._session.fetch(self._plan.sql["existing"], missing):
                records[self._plan.id(row["id"])] = f"it is not in {self._plan.view}"
        return records

    async def _fetch(self, ids: Sequence[Any]) -> list[Any]:
        return await self._session.fetch(self._plan.sql["read_records"], list(ids), timeout=self._timeout)

    def _judge(self, refused: Sequence[tuple[Any, Exception]], *, works: bool) -> dict[Any, str]:
        """Charge unreadable rows, unless the view may be the cause; an error in the data is charged to the row."""
        charged, doubtful = {}, []
        for id, error in refused:
            proven = works or isinstance(error, asyncpg.DataError) or self._read_at > self._unreadable.since(id)
            if proven or self._unreadable.tries(id) >= ENOUGH:
                charged[id] = message_of(error)
            else:
                doubtful.append((id, error))
        if not charged and not works and doubtful:
            for id, _ in doubtful:
                self._unreadable.put(id)
            raise UnreadableRecord([id for id, _ in doubtful], doubtful[0][1]) from doubtful[0][1]
        return charged | {id: message_of(error) for id, error in doubtful}

    def _adjust(self, took: float, count: int) -> None:
        """Increase the batch size again once reads are fast."""
        if self.most is not None and count >= self.most and took < QUICK * self._timeout:
            self.most = self.most * 2 if self.most < 1000 else None


def _refuses(error: BaseException) -> bool:
    return is_rejection(error) or str(getattr(error, "sqlstate", "") or "")[:2] in ("XX", "54")
