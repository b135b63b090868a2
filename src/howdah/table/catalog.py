"""Reads a table's definition from the system catalogue and checks whether it can be worked on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from howdah.errors import ConfigError
from howdah.postgres.sql import identifier
from howdah.table.columns import NEEDS, STATES, Columns
from howdah.table.names import RelationName, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column in the catalogue."""

    name: str
    type: str
    namespace: str
    labels: list[str] | None
    """The labels, if it is an enum."""
    limited: int
    required: bool
    generated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An existing table or view."""

    oid: int
    namespace: str
    name: str
    kind: str
    alias: str
    attributes: Mapping[str, Attribute]

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{identifier(self.namespace)}.{identifier(self.name)}"


async def look_up(conn: Any, name: RelationName, what: str) -> Relation:
    """Find a relation, or raise :class:`ConfigError`."""
    row = await conn.fetchrow(read()["describe"], name.quoted)
    if row is None:
        raise ConfigError(f"{what} {name} does not exist; create it, or name it with its schema")
    rows = await conn.fetch(read()["attributes"], row["oid"])
    return Relation(**row, alias=name.alias, attributes={each["name"]: Attribute(**each) for each in rows})


async def check(conn: Any, table: Relation, view: Relation, columns: Columns) -> list[str]:
    """Return every reason why this table cannot be worked on, each with its fix."""
    if table.kind not in "rp":
        return [
            f"{table} is not a table; name the base table, and pass the view that records are read through as view=…"
        ]
    wrong = [fault for role, name in columns.items() for fault in _faults(table, role, name)]
    if columns.id in table.attributes:
        wrong += await _check_indexes(conn, table, columns.id)
    if columns.id not in view.attributes:
        wrong.append(f"view {view} has no column {columns.id!r}, which identifies records; add it to the view")
    return wrong


def _faults(table: Relation, role: str, name: str) -> list[str]:
    need, column = NEEDS[role], table.attributes.get(name)
    called = repr(name) if name == role else f"{name!r} (for {role})"
    change = f"alter table {table.quoted} alter column {identifier(name)}"
    if column is None:
        add = f"alter table {table.quoted} add column {identifier(name)} {need.ddl}"
        return [f"table {table} has no column {called}; run `{add}`, or name another with Columns({role}=…)"]
    wrong = []
    kind = "enum" if column.labels is not None else column.type
    if kind not in need.types:
        words = " or ".join(dict.fromkeys(_said(each) for each in need.types))
        fix = (
            f"run `{change} type {need.ddl.split(' not null')[0].split(' default')[0]}`"
            if role != "id"
            else "change it"
        )
        wrong.append(f"column {called} of table {table} is {_said(column.type)}, it must be {words}; {fix}")
    elif column.labels is not None and (missing := [state for state in STATES if state not in column.labels]):
        enum = f"{identifier(column.namespace)}.{identifier(column.type)}"
        add = "; ".join(f"alter type {enum} add value '{state}'" for state in missing)
        wrong.append(f"the enum of column {called} of table {table} has no {', '.join(missing)}; run `{add}`")
    elif role in ("failure_message", "worker_hostname", "state") and column.limited != -1:
        wrong.append(f"column {called} of table {table} is limited in length; run `{change} type text`")
    if column.required and need.nullable:
        wrong.append(
            f"column {called} of table {table} is not null, but null must be allowed; run `{change} drop not null`"
        )
    if column.generated:
        wrong.append(f"column {called} of table {table} is generated, so it cannot be written; use another column")
    return wrong


async def _check_indexes(conn: Any, table: Relation, id: str) -> list[str]:
    row = await conn.fetchrow(read()["indexes"], table.oid, id)
    if table.kind == "r" and not row["single"]:
        fix = f"alter table {table.quoted} add primary key ({identifier(id)})"
        return [f"column {id!r} of table {table} is not unique; run `{fix}`"]
    if not row["found"]:
        fix = f"create index on {table.quoted} ({identifier(id)})"
        return [f"no index of table {table} begins with column {id!r}; run `{fix}`"]
    return []


def _said(type: str) -> str:
    plain = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean", "varchar": "varchar"}
    return f"{type[1:]}[]" if type.startswith("_") else plain.get(type, type)


def refuse(table: str, wrong: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if anything is wrong."""
    if wrong:
        raise ConfigError(f"table {table} cannot be worked on: " + "\n  ".join(["", *wrong]).strip())
