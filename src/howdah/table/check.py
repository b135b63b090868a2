"""Checks a table: reasons why it cannot be worked on, or only slowly, each with its fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from howdah.errors import ConfigError, SchemaError
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from howdah.table import ddl
from howdah.table.contract import NEEDS, STATES, Attribute, Relation, look_up, type_name
from howdah.table.declaration import MOST_DECLARED, TableDeclaration, conflict, conflicts
from howdah.table.options import TableOptions
from howdah.table.plan import ClaimPlan, TablePlan
from howdah.table.statement import build, channel, read

LATELY = 3600.0
"""Seconds for which a rejection is shown; one that persists is recorded again every minute."""
MOST_SHOWN = 20
MANY_SCHEDULED = 1000
"""Rows scheduled for later from which on an index for due rows is wanted."""


class TableFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a table."""

    where: str
    what: str
    fix: str
    sql: Sequence[str] = ()
    """Statements that fix it; empty when it must be fixed by hand."""


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """The findings for one table."""

    table: str
    findings: Sequence[TableFinding]
    """Empty: the table is ready."""
    reads: Sequence[str] = ()
    """The indexes that a claim reads."""
    trigger: str | None = None
    """The statements of the trigger that wakes nodes; ``None`` when the table does not exist."""


async def examine(database: Database, options: TableOptions) -> TableReport:
    """Compare a table with what its options need. Read-only."""
    conn = await database.connect("check")
    try:
        return await _Examination(conn, options, database).report()
    finally:
        conn.terminate()


class _Examination:
    def __init__(self, conn: Any, options: TableOptions, database: Database) -> None:
        self._conn = conn
        self._options = options
        self._columns = options.columns
        self._database = database

    async def report(self) -> TableReport:
        options = self._options
        schema = await self._schema()
        try:
            table = await look_up(self._conn, options.relation, "table")
        except ConfigError:
            return TableReport(table=str(options.relation), findings=[*schema, self._missing()])
        if table.kind not in "rp":
            what, fix = (
                f"{table} is not a table",
                "name the base table, and pass the view that records are read through as view=…",
            )
            return TableReport(table=str(table), findings=[*schema, TableFinding(where="table", what=what, fix=fix)])
        wrong = [*await self._column_findings(table), *await self._constraints(table), *await self._view()]
        plan, refused = (None, []) if schema or wrong else await self._plan(table)
        claim = await plan.explain(self._conn) if plan else ClaimPlan([])
        indexes = await self._indexes(table, claim)
        scheduled = await self._scheduled(table) if plan and not plan.lists_due else []
        names = {row["name"] for row in await self._conn.fetch(read()["check_leaves"], table.oid)}
        if claim.reads_whole(names) and not indexes:
            indexes.append(_unread(table))
        recorded = [] if schema else await problems(self._conn, table, self._database.schema)
        return TableReport(
            table=str(table),
            findings=[*schema, *wrong, *refused, *indexes, *scheduled, *await self._wake(table), *recorded],
            reads=claim.indexes,
            trigger=ddl.trigger(table, self._columns),
        )

    async def _schema(self) -> list[TableFinding]:
        try:
            await migrate.check(self._database, self._conn)
        except SchemaError as error:
            what, _, fix = str(error).rpartition("; ")
            return [TableFinding(where="schema", what=what, fix=fix)]
        return []

    def _missing(self) -> TableFinding:
        return TableFinding(
            where="table",
            what=f"table {self._options.relation} does not exist",
            fix="create it as `howdah table create` says, or name it with its schema",
            sql=ddl.create(self._options),
        )

    async def _column_findings(self, table: Relation) -> list[TableFinding]:
        rows = await self._conn.fetch(read()["check_defaults"], table.oid)
        indexes = await self._usable(table)
        keyed, given = any(index.is_primary for index in indexes), {row["name"] for row in rows}
        found = []
        for role, name in self._columns.items():
            column = table.attributes.get(name)
            called = f"column {name!r}" if name == role else f"column {name!r} (for {role})"
            if column is None:
                sql = [ddl.add_column(table, role, name, keyed=keyed)]
                fix = f"add it, or name another with Columns({role}=…)"
                if role == "state":
                    fix += "; every row that is there becomes queued"
                if role == "id" and table.kind == "p":
                    sql.append(ddl.id_index(table, await self._free_name(table, "id"), name))
                found.append(TableFinding(where=called, what=f"table {table} has no {called}", fix=fix, sql=sql))
            else:
                found += _faults(table, role, column, called, given=name in given)
        return found + await self._id_index(table)

    async def _id_index(self, table: Relation) -> list[TableFinding]:
        id = self._columns.id
        if id not in table.attributes:
            return []
        row = await self._conn.fetchrow(read()["indexes"], table.oid, id)
        if row["single"] or (table.kind == "p" and row["found"]):
            return []
        what = f"column {id!r} is not unique" if table.kind == "r" else f"no index begins with column {id!r}"
        name = await self._free_name(table, "id")
        sql = [ddl.id_index(table, name, id)]
        return [TableFinding(where=f"column {id!r}", what=f"{what} in table {table}", fix="add an index", sql=sql)]

    async def _constraints(self, table: Relation) -> list[TableFinding]:
        state = table.attributes.get(self._columns.state)
        if state is None or (state.labels is None and state.type not in NEEDS["state"].types):
            return []
        known = [each for each in STATES if state.labels is None or each in state.labels]
        names = {"state": state.name, "state_type": state.type, "state_namespace": state.namespace}
        found = []
        for row in await self._conn.fetch(read()["check_constraints"], table.oid, state.name):
            statement = build("check_states", names, condition=row["condition"])
            refused = [each["state"] for each in await self._conn.fetch(statement, known)]
            if refused:
                where, words = f"constraint {row['name']!r}", ", ".join(refused)
                sql = ddl.allow_states(table, self._columns, row["name"], row["condition"], refused)
                what = f"{where} of table {table} does not allow {words}"
                found.append(TableFinding(where=where, what=what, fix="allow these states", sql=sql))
        return found

    async def _view(self) -> list[TableFinding]:
        name, id = self._options.view_relation, self._columns.id
        if self._options.view is None:
            return []
        try:
            view = await look_up(self._conn, name, "view")
        except ConfigError:
            return [TableFinding(where="view", what=f"view {name} does not exist", fix="create it, or name its schema")]
        if id in view.attributes:
            return []
        what = f"view {view} has no column {id!r}, which identifies records"
        return [TableFinding(where="view", what=what, fix="add it to the view")]

    async def _plan(self, table: Relation) -> tuple[TablePlan | None, list[TableFinding]]:
        try:
            return await TablePlan.make(self._conn, self._options, self._database.schema), []
        except ConfigError as error:
            text = str(error).removeprefix(f"table {table} cannot be worked on: ")
            return None, [
                TableFinding(where="options", what=text, fix="change the options in app.table(…), or the table")
            ]

    async def _indexes(self, table: Relation, claim: ClaimPlan) -> list[TableFinding]:
        columns, found = self._columns, []
        # Without the missing columns there is nothing to explain.
        known = {*table.attributes, *(name for _, name in columns.items())}
        order = ddl.claim_order(self._options, known)
        if any(key.column not in known for key in order):
            return []
        indexes = await self._usable(table)
        asked = order[: len(self._options.orders)] or order
        waiting = [each for each in indexes if each.holds(ddl.WAITING, columns.state) and each.ordered_by(asked)]
        # An index with a condition that only the planner understands is as good, if it is read in order.
        if not waiting and not any(index.predicate and index.name in claim.in_order for index in indexes):
            sql = ddl.waiting_index(table.quoted, await self._free_name(table, "waiting"), columns, order)
            what = f"no index of table {table} covers just the waiting rows, in the order of the claim"
            fix = "add one, or every claim also reads finished rows"
            found.append(TableFinding(where="index for claims", what=what, fix=fix, sql=[sql]))
        by_state = [index for index in indexes if index.predicate is None and index.columns[:1] == [columns.state]]
        if not by_state and not any(index.holds(["processing"], columns.state) for index in indexes):
            sql = ddl.processing_index(table.quoted, await self._free_name(table, "processing"), columns)
            what = f"no index of table {table} covers just the processing rows"
            fix = "add one, or every search for silent workers reads the whole table"
            found.append(TableFinding(where="index for resets", what=what, fix=fix, sql=[sql]))
        if not any(index.holds(ddl.WAITING, columns.cancel, columns.state) for index in indexes):
            sql = ddl.cancel_index(table.quoted, await self._free_name(table, "cancel"), columns)
            what = f"no index of table {table} covers just the waiting rows to be cancelled"
            fix = "add one, or every search for them reads all waiting rows"
            found.append(TableFinding(where="index for cancels", what=what, fix=fix, sql=[sql]))
        return found

    async def _scheduled(self, table: Relation) -> list[TableFinding]:
        """Return the missing index for due rows, if many rows are scheduled for later."""
        columns = self._columns
        names = {**dict(columns.items()), "namespace": table.namespace, "table": table.name, "alias": table.alias}
        if not await self._conn.fetchval(build("check_scheduled", names), MANY_SCHEDULED):
            return []
        sql = ddl.scheduled_index(table.quoted, await self._free_name(table, "scheduled"), columns)
        what = f"{MANY_SCHEDULED:,} or more rows of table {table} are scheduled for later; no index finds the due ones"
        fix = "add one, or every claim reads all waiting rows"
        return [TableFinding(where="index for scheduled rows", what=what, fix=fix, sql=[sql])]

    async def _usable(self, table: Relation) -> list[ddl.Index]:
        return [ddl.Index(*row) for row in await self._conn.fetch(read()["check_indexes"], table.oid)]

    async def _free_name(self, table: Relation, what: str) -> str:
        names = [ddl.index_name(table.name, what + suffix) for suffix in ("", *map(str, range(2, 100)))]
        rows = await self._conn.fetch(read()["check_names_in_use"], table.namespace, names)
        taken = {row["name"] for row in rows}
        return next(name for name in names if name not in taken)

    async def _wake(self, table: Relation) -> list[TableFinding]:
        if not self._options.notify or {self._columns.state, self._columns.process_after} - set(table.attributes):
            return []
        if await self._conn.fetchval(read()["check_trigger"], table.oid, channel(table.quoted)):
            return []
        what = f"notify is on, but table {table} has no trigger that wakes nodes"
        sql = [ddl.trigger(table, self._columns)]
        return [TableFinding(where="trigger", what=what, fix="add it; until then new rows wait for the poll", sql=sql)]


def _faults(table: Relation, role: str, column: Attribute, called: str, *, given: bool) -> Iterator[TableFinding]:
    """Return the problems of one existing column; ``given``: it has a default."""
    need, (type, default), name = NEEDS[role], ddl.declared(role), column.name
    of = f"{called} of table {table}"
    if ("enum" if column.labels is not None else column.type) not in need.types:
        words = " or ".join(dict.fromkeys(map(type_name, need.types)))
        sql = ddl.change_type(table, role, name, column.type)
        fix = f"make it {type}" if sql else "change it by hand, or name another column"
        given = True  # The statement that changes the type also sets the default.
        yield TableFinding(where=called, what=f"{of} is {type_name(column.type)}, it must be {words}", fix=fix, sql=sql)
    elif column.labels is not None and not set(STATES) <= set(column.labels):
        enum = f"{identifier(column.namespace)}.{identifier(column.type)}"
        lacks = ", ".join(state for state in STATES if state not in column.labels)
        fix = "add them, in a transaction of their own"
        sql = ddl.add_labels(enum, column.labels)
        yield TableFinding(where=called, what=f"the enum of {of} has no {lacks}", fix=fix, sql=sql)
    elif role in ("failure_message", "worker_hostname", "state") and column.limited != -1:
        sql = [ddl.alter_column(table, name, "type text")]
        yield TableFinding(where=called, what=f"{of} is limited in length", fix="make it text", sql=sql)
    if column.generated:
        yield TableFinding(where=called, what=f"{of} is generated, so it cannot be written", fix="name another column")
        return
    if column.required and need.nullable:
        sql = [ddl.alter_column(table, name, "drop not null")]
        yield TableFinding(
            where=called, what=f"{of} is not null, but null must be allowed", fix="let it be null", sql=sql
        )
    if default and not given and (column.required or role in ("state", "queued_at")):
        sql = [ddl.alter_column(table, name, f"set default {default}")]
        yield TableFinding(where=called, what=f"{of} has no default", fix=f"let it be {default}", sql=sql)


def _unread(table: Relation) -> TableFinding:
    return TableFinding(
        where="plan",
        what=f"a claim reads the whole of table {table}, although there is an index for it",
        fix="compare the condition of the index with where=… of the table",
    )


async def problems(conn: Any, table: Relation, schema: str) -> list[TableFinding]:
    """Return the rows whose update the table rejected lately, and conflicting declarations."""
    names = {"schema": schema}
    rows = await conn.fetch(build("rejections", names), table.quoted, LATELY, MOST_SHOWN)
    found = [
        TableFinding(
            where=f"row {row['id']}",
            what=f"table {table} refuses the {row['act']} of row {row['id']}: {row['message']}",
            fix="change the row, or the constraint or trigger that refuses it",
        )
        for row in rows
    ]
    declared = [
        TableDeclaration(**row) for row in await conn.fetch(build("declared", names), table.quoted, MOST_DECLARED)
    ]
    for one, other in conflicts(declared):
        fix = "declare the same stalled_after in both, or conditions (where) that exclude each other"
        found.append(TableFinding(where="conflict", what=conflict(str(table), one, other), fix=fix))
    return found
