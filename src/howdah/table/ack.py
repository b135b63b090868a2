"""Records the outcomes of attempts; a row whose outcome the table rejects fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from howdah.postgres.database import Session
from howdah.postgres.sql import columns
from howdah.table.budget import Key
from howdah.table.plan import TablePlan
from howdah.table.rejected import Dropped, RejectionNotes, is_rejection, message_of, split


class RowOutcome(NamedTuple):
    """The outcome to record for one row."""

    id: Any
    token: int
    state: str
    delay: float | None = None
    message: str | None = None

    @property
    def released(self) -> bool:
        """True if the row is only released."""
        return self.state == "queued" and self.delay is None


class Recorded(NamedTuple):
    """The result of recording one row."""

    state: str
    refusal: str | None = None
    """The database's message, when the row failed because its outcome was rejected."""


class RowAcks:
    """Writes outcomes in one statement; one by one where some are rejected."""

    def __init__(self, plan: TablePlan, session: Session, notes: RejectionNotes) -> None:
        self._plan = plan
        self._session = session
        self._notes = notes

    async def record(self, outcomes: Sequence[RowOutcome]) -> tuple[dict[Key, Recorded], set[Key]]:
        """Record these; return those written, and those still held by this node but locked.

        A row whose outcome is rejected fails with the database's message.
        """
        rows, refused = await split(outcomes, self._send)
        by_key = {(each.token, each.id): each for each in outcomes}
        written: dict[Key, Recorded] = {}
        locked: set[Key] = set()
        for row in rows:
            key = (row["token"], self._plan.id(row["id"]))
            if row["locked"]:
                locked.add(key)
            elif not row["done"]:
                refused.append((by_key[key], Dropped()))
            elif key in by_key and row["state"] in (by_key[key].state, "canceled"):
                written[key] = Recorded(row["state"])
        self._notes.add("ack", [(each.id, error) for each, error in refused])
        for each, error in refused:
            if each.released:  # Left to the reset: the update may be accepted by then.
                continue
            failed = await self._fail(each.id, each.token, message_of(error), self._session)
            if failed:
                written[each.token, each.id] = Recorded("failed", message_of(error))
            elif failed is None and await self._session.fetch(self._plan.sql["held"], each.id, each.token):
                locked.add((each.token, each.id))
        return written, locked & by_key.keys()

    async def fail(self, id: Any, token: int | None, message: str, session: Session) -> bool:
        """Fail a row that is processed under this token; return whether the table accepts that."""
        return bool(await self._fail(id, token, message, session))

    async def _fail(self, id: Any, token: int | None, message: str, session: Session) -> bool | None:
        """Fail a row; return whether the table accepts that, ``None`` if the row is locked or not held by this node."""
        try:
            rows = await session.fetch(self._plan.sql["fail"], id, token, message)
        except Exception as error:
            if not is_rejection(error):
                raise
            self._notes.add("fail", [(id, error)])
            return False
        return bool(rows[0]["done"]) if rows else None

    async def _send(self, outcomes: Sequence[RowOutcome]) -> list[Any]:
        return await self._session.fetch(self._plan.sql["ack"], *columns(outcomes, 5))
