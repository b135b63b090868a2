"""Outcomes: records how attempts ended, and fails rows alone whose outcome the table refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from howdah.pg.database import Session, columns
from howdah.table.budget import Key
from howdah.table.plan import Plan
from howdah.table.refusal import Dropped, Notes, is_refusal, message_of, split


class Told(NamedTuple):
    """What is to be recorded of one row."""

    id: Any
    token: int
    state: str
    delay: float | None = None
    message: str | None = None

    @property
    def released(self) -> bool:
        """Whether the row only goes back."""
        return self.state == "queued" and self.delay is None


class Recorded(NamedTuple):
    """What became of one row."""

    state: str
    refusal: str | None = None
    """The database's message, when the row failed because its outcome was refused."""


class Outcomes:
    """Writes outcomes in one statement; one by one where some are refused."""

    def __init__(self, plan: Plan, session: Session, notes: Notes) -> None:
        self._plan = plan
        self._session = session
        self._notes = notes

    async def record(self, told: Sequence[Told]) -> tuple[dict[Key, Recorded], set[Key]]:
        """Record these; returns those that were ours and are written, and those that are ours and locked.

        A refused one fails with the message.
        """
        rows, refused = await split(told, self._send)
        by_key = {(each.token, each.id): each for each in told}
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
            if each.released:  # it is left to the reset: it may be accepted by then
                continue
            failed = await self._fail(each.id, each.token, message_of(error), self._session)
            if failed:
                written[each.token, each.id] = Recorded("failed", message_of(error))
            elif failed is None and await self._session.fetch(self._plan.sql["held"], each.id, each.token):
                locked.add((each.token, each.id))
        return written, locked & by_key.keys()

    async def fail(self, id: Any, token: int | None, message: str, session: Session) -> bool:
        """End a row that is worked on under this token; returns whether the table accepts that."""
        return bool(await self._fail(id, token, message, session))

    async def _fail(self, id: Any, token: int | None, message: str, session: Session) -> bool | None:
        """End a row; returns whether the table accepts that, ``None`` if the row is locked or not ours."""
        try:
            rows = await session.fetch(self._plan.sql["fail"], id, token, message)
        except Exception as error:
            if not is_refusal(error):
                raise
            self._notes.add("fail", [(id, error)])
            return False
        return bool(rows[0]["done"]) if rows else None

    async def _send(self, told: Sequence[Told]) -> list[Any]:
        return await self._session.fetch(self._plan.sql["ack"], *columns(told, 5))
