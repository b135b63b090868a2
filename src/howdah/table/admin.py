"""Administration of the rows of a table, for the command line."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from howdah.audit import AuditTrail, common
from howdah.errors import ConfigError, HowdahError
from howdah.postgres.sql import identifier, literal
from howdah.table.contract import NUMBERS, STATES
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.rejected import message_of, split
from howdah.table.statement import build, conjunction, read

READ_TIMEOUT = 5.0
"""Statement timeout in seconds."""
LARGEST_PAGE = 1000
CHUNK = 1000
"""Rows changed in one transaction."""
SMALL = 8 * 1024 * 1024
"""Largest size in bytes of a table that is counted, not estimated."""
LIVE = ("queued", "errored", "processing")
TIMES = ("queued_at", "process_after", "started_at", "finished_at", "last_heartbeat_at")
BITS = dict(zip(NUMBERS, (16, 32, 64), strict=True))


class RowCount(msgspec.Struct, frozen=True):
    """Number of rows in one state."""

    rows: int | None
    """``None``: unknown."""
    exact: bool = True

    def __str__(self) -> str:
        return "?" if self.rows is None else f"{'' if self.exact else '~'}{self.rows}"


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Row counts of a table at one point in time."""

    table: str
    states: dict[str, RowCount]
    due: int
    """Rows that can be claimed now."""
    oldest: float | None
    """Seconds the oldest of these has waited."""


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """The contract's columns of one row; its other columns are the application's.

    A time beyond the years 1 to 9999 is text, as PostgreSQL writes it.
    """

    id: int | str
    state: str | None
    failures: int
    resets: int
    queued_at: datetime | str | None
    process_after: datetime | str | None
    started_at: datetime | str | None
    finished_at: datetime | str | None
    last_heartbeat_at: datetime | str | None
    worker: str | None
    message: str | None
    cancel: bool


class RowActionResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a change to one row."""

    id: int | str
    was: str | None
    """The state it was in; ``None``: there is no such row."""
    result: str
    """queued, canceled, asked (its worker stops at the next heartbeat) or left."""
    error: str | None = None
    """Why the table rejected the change."""

    @property
    def did(self) -> bool:
        """True if it was done, or requested from the worker."""
        return self.result != "left"


def counting(plan: TablePlan) -> tuple[str, str, Sequence[Any]]:
    """Return the name of the table, the statement that counts its unfinished rows, and its values."""
    where, values = conjunction([plan.options.where] if plan.options.where else [], 0)
    return plan.options.name, build("count", _names(plan), where=where), values


def looking(plan: TablePlan) -> tuple[str, Sequence[Any]]:
    """Return the statement that reads one row as a claim does, and its values after the id."""
    where, values = conjunction([plan.options.where] if plan.options.where else [], 1)
    costs = plan.budget_use.costs() if plan.budget_use else ""
    return build("inspect_row", _names(plan), where=where, costs=costs), values


def sticking(plan: TablePlan) -> str:
    """Return the statement that counts rows whose worker has been silent for a given time."""
    return build("stuck", _names(plan))


class TableAdmin:
    """Count, list, retry, requeue, cancel. Every answer is bounded in size and in time."""

    def __init__(self, conn: Any, plan: TablePlan) -> None:
        self._conn = conn
        self._plan = plan
        self._names = _names(plan)
        self._trail = AuditTrail(plan.schema)

    @classmethod
    async def open(cls, conn: Any, options: TableOptions, schema: str) -> TableAdmin:
        """Make an admin for this table, or raise :class:`ConfigError` if the table cannot be worked on."""
        return cls(conn, await TablePlan.make(conn, options, schema))

    @property
    def numbered(self) -> bool:
        """True if ids are numbers."""
        return self._names["id_type"] in NUMBERS

    async def status(self, *, small: int = SMALL) -> TableStatus:
        """Count unfinished rows exactly; finished ones are estimated unless the table is smaller than ``small``."""
        _, statement, values = counting(self._plan)
        async with self._connection() as conn:
            live = await conn.fetchrow(statement, *values)
            ended = await conn.fetchrow(read()["count_ended"], self._plan.table.oid, self._plan.options.columns.state)
            if ended["bytes"] <= small:
                rows = await conn.fetch(build("count_all", self._names))
                over = {row["state"]: RowCount(row["rows"]) for row in rows}
                rest = RowCount(0)
            else:
                seen = zip(ended["states"] or (), ended["rows"] or (), strict=True)
                over = {state: RowCount(rows, exact=False) for state, rows in seen}
                rest = RowCount(0 if over else None, exact=False)
        states = {state: RowCount(live[state]) if state in LIVE else over.get(state, rest) for state in STATES}
        return TableStatus(table=str(self._plan.table), states=states, due=live["due"], oldest=live["oldest"])

    async def list(self, state: str | None = None, *, before: Any = None, limit: int = 50) -> Sequence[TableRow]:
        """Return rows by descending id, below ``before``: pass the last id of a page to get the next one."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")
        if state is not None and state not in STATES:
            raise ConfigError(f"there is no state {state!r}; use {', '.join(STATES)}")
        column = identifier(self._plan.options.columns.state)
        fragments = {} if before is not None else {"before": ""}
        fragments["state"] = f"\n  and t.{column} = {literal(state)}" if state else ""
        page = [before] if before is not None else []
        async with self._connection(by_id=state not in LIVE) as conn:
            rows = await conn.fetch(build("list", self._names, **fragments), limit, *page)
        return [TableRow(**{**row, **_times(row), "id": self._id(row["id"])}) for row in rows]

    async def retry(self, ids: Sequence[Any]) -> Sequence[RowActionResult]:
        """Requeue failed and errored rows with all attempts, due at once; return the result for each."""
        return await self._act("retry", ids)

    async def requeue(self, ids: Sequence[Any], after: float = 0.0) -> Sequence[RowActionResult]:
        """Requeue rows, due after a number of seconds, unless they are processing; return the result for each."""
        return await self._act("requeue", ids, after)

    async def cancel(self, ids: Sequence[Any]) -> Sequence[RowActionResult]:
        """Cancel rows: waiting ones at once, others at the next heartbeat; return the result for each."""
        return await self._act("cancel_rows", ids)

    def read_id(self, word: str) -> str:
        """Parse an id that is not a number."""
        if self._names["id_type"] != "uuid":
            return word
        try:
            return str(uuid.UUID(word))
        except ValueError:
            raise ConfigError(f"{word!r} is not an id of table {self._plan.table}; its ids are uuids") from None

    async def _act(self, verb: str, ids: Sequence[Any], *values: Any) -> Sequence[RowActionResult]:
        statement, results = build(verb, self._names), []
        known = [id for id in ids if self._fits(id)]

        async def act(part: Sequence[Any]) -> list[RowActionResult]:
            async with self._connection(readonly=False) as conn:
                rows = await conn.fetch(statement, list(part), *values)
                chunk = [RowActionResult(id=self._id(row["id"]), was=row["was"], result=row["result"]) for row in rows]
                await self._record(verb.removesuffix("_rows"), [each for each in chunk if each.did])
            return chunk

        for start in range(0, len(known), CHUNK):
            done, refused = await split(known[start : start + CHUNK], act)
            results += done
            results += [
                RowActionResult(id=id, was="refused", result="left", error=message_of(error)) for id, error in refused
            ]
        return results + [RowActionResult(id=id, was=None, result="left") for id in ids if not self._fits(id)]

    async def _record(self, verb: str, did: Sequence[RowActionResult]) -> None:
        if did:
            was, now = common(each.was for each in did), common(each.result for each in did)
            before, after = ({"table": str(self._plan.table), "state": state} for state in (was, now))
            await self._trail.record(self._conn, verb, "row", [each.id for each in did], before=before, after=after)

    def _fits(self, id: Any) -> bool:
        """Leave out ids too big for the column: no row has them."""
        return not self.numbered or abs(id) < 2 ** (BITS[self._names["id_type"]] - 1)

    def _id(self, text: str) -> int | str:
        return int(text) if self.numbered else text

    @asynccontextmanager
    async def _connection(self, *, readonly: bool = True, by_id: bool = False) -> AsyncIterator[Any]:
        """Open a transaction with a statement timeout; ``by_id``: scan in the order of ids, whatever the statistics."""
        async with self._conn.transaction(readonly=readonly):
            sorts = "off" if by_id else "on"
            await self._conn.execute(
                "select set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),"
                " set_config('enable_sort', $2, true), set_config('enable_bitmapscan', $2, true)",
                str(int(READ_TIMEOUT * 1000)),
                sorts,
            )
            try:
                yield self._conn
            except asyncpg.QueryCanceledError:
                raise HowdahError(
                    f"this took longer than {READ_TIMEOUT:g} s and was stopped; `howdah table check` names the missing"
                    " index; a locked row also delays it"
                ) from None


def _times(row: Any) -> dict[str, datetime | str | None]:
    return {name: _time(row[name]) for name in TIMES}


def _time(text: str | None) -> datetime | str | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return text


def _names(plan: TablePlan) -> dict[str, str]:
    table, columns = plan.table, plan.options.columns
    own = {"namespace": table.namespace, "table": table.name, "alias": table.alias}
    return {**dict(columns.items()), **own, "id_type": table.attributes[columns.id].type}
