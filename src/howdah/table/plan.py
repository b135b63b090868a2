"""The statements of one table, built from its options and checked against the catalogue."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from howdah.errors import ConfigError
from howdah.postgres.sql import identifier
from howdah.table.budget import Budget, BudgetUse
from howdah.table.contract import Relation, check, look_up, refuse
from howdah.table.ddl import Index
from howdah.table.options import TableOptions
from howdah.table.statement import Where, build, conjunction, read

log = logging.getLogger("howdah")

OWN = 4
"""Number of parameters of a claim before those of its conditions."""
OWN_OF_SILENT = 5


INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
"""Bits of the integer types an id may have."""
VERBS = (
    *(
        "next_token",
        "existing",
        "ack",
        "ack_in_transaction",
        "ack_batch",
        "held",
        "fail",
        "heartbeat",
        "release",
        "unconfirmed",
        "expire",
        "unrenewable",
        "reset",
        "log",
    ),
    *("cancel", "rows_to_cancel", "declare", "declared", "record_rejections", "rejections"),
)


class TablePlan:
    """The checked statements of one table."""

    def __init__(self, options: TableOptions, table: Relation, view: Relation, schema: str) -> None:
        self.options = options
        self.schema = schema
        self.table = table
        self.view = view
        self.through_view = view.oid != table.oid
        self.budget: Budget | None = options.budget
        self.budget_use = BudgetUse(options.budget, table.alias) if options.budget else None
        columns = options.columns
        id_type = table.attributes[columns.id].type
        self._id_type = id_type
        self._id_is_uuid = id_type == "uuid"
        state = table.attributes[columns.state]
        self._names = {
            **dict(columns.items()),
            "schema": schema,
            "namespace": table.namespace,
            "table": table.name,
            "alias": table.alias,
            "view_namespace": view.namespace,
            "view": view.name,
            "view_alias": view.alias,
            "id_type": id_type,
            "state_type": state.type,
            "state_namespace": state.namespace,
            "logs_type": table.attributes[columns.execution_logs].type,
        }
        self._order = _order(options, table)
        self.sql = {verb: build(verb, self._names) for verb in VERBS}
        self.sql["log_in_transaction"] = build("log", self._names, wait="")
        record = options.reader.select(view, columns)
        self.sql["read_records"] = build("read_records", self._names, **({} if record is None else {"record": record}))
        self._claims: dict[tuple[str, ...], str] = {}
        self.lists_due = False
        """True if an index finds the due rows without reading those that are scheduled for later."""

    @classmethod
    async def make(cls, conn: Any, options: TableOptions, schema: str) -> TablePlan:
        """Check the options against the database and build the statements, or raise :class:`ConfigError`."""
        table = await look_up(conn, options.relation, "table")
        view = await look_up(conn, options.view_relation, "view")
        wrong = await check(conn, table, view, options.columns)
        if options.budget:
            wrong += _check_budget(options.budget, table)
        refuse(str(table), wrong)
        plan = cls(options, table, view, schema)
        indexes = [Index(*row) for row in await conn.fetch(read()["check_indexes"], table.oid)]
        plan.lists_due = any(index.finds_due(options.columns) for index in indexes)
        await plan._try(conn)
        return plan

    def id(self, value: Any) -> Any:
        """Convert an id to the form used in jobs."""
        return str(value) if self._id_is_uuid else value

    def fits(self, id: Any) -> bool:
        """Return whether a row can have this job id."""
        if bits := INTEGERS.get(self._id_type):
            return isinstance(id, int) and not isinstance(id, bool) and -(2 ** (bits - 1)) <= id < 2 ** (bits - 1)
        return isinstance(id, str) and "\0" not in id and not (self._id_is_uuid and not _is_uuid(id))

    def claim(self, extra: Where | None, only: Sequence[Any] | None = None) -> tuple[str, list[Any]]:
        """Return the claim statement and the values of its conditions; ``only``: among these rows."""
        wheres = self._wheres(extra)
        text, values = conjunction(wheres, OWN)
        listed = {}
        if only is not None:
            values.append(list(only))
            listed["listed"] = f"${OWN + len(values)}::pg_catalog.{identifier(self._id_type)}[]"
        within, sums, fits, left = self.budget_use.within(OWN + len(values)) if self.budget_use else ("", "", "", [])
        key = ("" if only is None else "only", *(where.text for where in wheres))
        if key not in self._claims:
            if len(self._claims) > 100:  # A hook that returns ever new conditions must not fill the memory.
                self._claims.clear()
            costs = self.budget_use.costs() if self.budget_use else ""
            fragments = {"where": text + within, "order": self._order, "costs": costs, "sums": sums, "fits": fits}
            verb = "claim" if only is None else "claim_listed"
            self._claims[key] = build(verb, self._names, **fragments, **listed)
        return self._claims[key], values + left

    def due(self, extra: Where | None) -> tuple[str, list[Any]]:
        """Return the statement that lists the rows a claim would try, and the values of its conditions."""
        text, values = conjunction(self._wheres(extra), OWN)
        within, _, _, left = self.budget_use.within(OWN + len(values)) if self.budget_use else ("", "", "", [])
        return build("due", self._names, where=text + within, order=self._order), values + left

    def list_due(self, extra: Where | None) -> tuple[str, list[Any]]:
        """Return the statement that lists the due rows if others are scheduled for later, and its values."""
        text, values = conjunction(self._wheres(extra), OWN)
        return build("list_due", self._names, where=text, order=self._order), values

    def silent(self, only: Sequence[Any] | None) -> tuple[str, list[Any]]:
        """Return the statement that finds silent rows, and the values of the table's own condition."""
        text, values = conjunction(self._wheres(None), OWN_OF_SILENT)
        ids = ""
        if only is not None:
            values.append(list(only))
            ids = self._among(OWN_OF_SILENT + len(values))
        return build("silent", self._names, where=text, ids=ids), values

    def oversized(self) -> tuple[str, list[float]]:
        """Return the statement that finds rows that exceed the total budget, and its values."""
        assert self.budget_use is not None
        exceeds, totals = self.budget_use.exceeds(1)
        return build("oversized", self._names, exceeds=exceeds, costs=self.budget_use.costs()), totals

    async def explain(self, conn: Any) -> ClaimPlan:
        """Return the server's plan for a claim."""
        statement, values = self.claim(None)
        async with conn.transaction(readonly=True):
            # As on the connections of a node, also behind a pooler that does not allow settings at the start.
            await conn.execute("set local enable_seqscan = off")
            text = await conn.fetchval(f"explain (format json) {statement}", 1, "check", 1, [], *values)
        return ClaimPlan(list(_nodes(msgspec.json.decode(text)[0]["Plan"])))

    def _wheres(self, extra: Where | None) -> list[Where]:
        return [where for where in (self.options.where, extra) if where is not None]

    def _among(self, parameter: int) -> str:
        column = f"{identifier(self.table.alias)}.{identifier(self.options.columns.id)}"
        return f"\n      and {column} = any(${parameter}::pg_catalog.{identifier(self._names['id_type'])}[])"

    async def _try(self, conn: Any) -> None:
        """Let the server parse the developer's SQL."""
        wheres = f"where {self.options.where!r}" if self.options.where else "order_by"
        for statement, what in (
            (self.claim(None)[0], wheres),
            (self.sql["read_records"], "a record or its expressions"),
        ):
            try:
                # asyncpg ends a prepare with Flush, not Sync: without an explicit transaction the server would stay in
                # one of its own, with a snapshot and locks, until the connection is used again
                async with conn.transaction():
                    await conn.prepare(statement, name="", timeout=5)  # Unnamed, because of poolers.
            except TimeoutError:  # Another session has locked the table; claims meet the same lock, and wait.
                log.warning("table %s is locked, so its conditions are not checked now", self.options.name)
            except (asyncpg.SyntaxOrAccessError, asyncpg.DataError) as error:
                raise ConfigError(
                    f"table {self.options.name} cannot be worked on: {what} does not work: {error}"
                ) from None


class ClaimPlan:
    """The server's plan for a claim."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = nodes
        self._due = [inner for node in nodes if node.get("Subplan Name") == "CTE due" for inner in _nodes(node)]

    @property
    def indexes(self) -> list[str]:
        """The indexes that it reads."""
        return list(dict.fromkeys(node["Index Name"] for node in self._due if "Index Name" in node))

    @property
    def in_order(self) -> list[str]:
        """The indexes that it reads in the order of the claim, without a sort."""
        return [] if any(node["Node Type"] == "Sort" for node in self._due) else self.indexes

    def reads_whole(self, tables: Collection[str]) -> bool:
        """Return whether it scans one of these tables as a whole."""
        return any(node["Node Type"] == "Seq Scan" and node["Relation Name"] in tables for node in self._nodes)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def _order(options: TableOptions, table: Relation) -> str:
    parts = []
    for order in options.orders:
        column = order.column(table.attributes)
        if column is None or order.qualifier not in (None, table.alias):
            raise ConfigError(
                f"table {table} has no column {order.word!r} to order by; its columns are {list(table.attributes)}"
            )
        parts.append(order.render(table.alias, column) + ", ")
    return "".join(parts)


def _check_budget(budget: Budget, table: Relation) -> list[str]:
    wrong = []
    for resource, name in budget.cost.items():
        column = table.attributes.get(name)
        if column is None:
            fix = f"alter table {table.quoted} add column {identifier(name)} integer"
            wrong.append(f"table {table} has no column {name!r} for {resource} of its budget; run `{fix}`")
        elif column.type not in ("int2", "int4", "int8", "float4", "float8", "numeric"):
            wrong.append(f"column {name!r} of table {table} is {column.type}, but {resource} needs a number")
    return wrong


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
