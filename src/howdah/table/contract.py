"""The contract: the columns that a work queue table must have, and the check of an existing table against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from howdah.errors import ConfigError
from howdah.postgres.sql import identifier
from howdah.table.statement import RelationName, read

NUMBERS = ("int2", "int4", "int8")
TEXTS = ("text", "varchar")
TIMES = ("timestamptz",)


@dataclass(frozen=True, slots=True)
class Need:
    """Requirements on one column."""

    types: tuple[str, ...]
    ddl: str
    """Its type and default in DDL."""
    nullable: bool = False
    """True if Howdah writes null to it."""


NEEDS = {
    "id": Need((*NUMBERS, "uuid", *TEXTS), "bigint generated always as identity primary key"),
    "state": Need((*TEXTS, "enum"), "text not null default 'queued'"),
    "failure_message": Need(TEXTS, "text", nullable=True),
    "queued_at": Need(TIMES, "timestamptz default now()"),
    "started_at": Need(TIMES, "timestamptz", nullable=True),
    "finished_at": Need(TIMES, "timestamptz", nullable=True),
    "process_after": Need(TIMES, "timestamptz", nullable=True),
    "num_resets": Need(NUMBERS, "integer not null default 0"),
    "num_failures": Need(NUMBERS, "integer not null default 0"),
    "last_heartbeat_at": Need(TIMES, "timestamptz", nullable=True),
    "execution_logs": Need(("_json", "_jsonb"), "json[]", nullable=True),
    "worker_hostname": Need(TEXTS, "text not null default ''"),
    "cancel": Need(("bool",), "boolean not null default false"),
    "lease_token": Need(("int8",), "bigint", nullable=True),
}
"""The contract. ``lease_token`` is the fencing token of the last claim; every write of a worker checks it."""

STATES = ("queued", "processing", "errored", "failed", "completed", "canceled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The table's names of the contract's columns: ``Columns(state="status")``."""

    id: str = "id"
    """The key: a number, uuid or text."""
    state: str = "state"
    """``queued processing errored failed completed canceled``, as text or enum."""
    failure_message: str = "failure_message"
    """Why the last attempt failed."""
    queued_at: str = "queued_at"
    """Time since which the row waits."""
    started_at: str = "started_at"
    """Time the last attempt began."""
    finished_at: str = "finished_at"
    """Time the last attempt ended."""
    process_after: str = "process_after"
    """Time before which the row is not claimed."""
    num_resets: str = "num_resets"
    """Number of workers that went silent while processing this row."""
    num_failures: str = "num_failures"
    """Number of failed attempts."""
    last_heartbeat_at: str = "last_heartbeat_at"
    """Time of its worker's last heartbeat."""
    execution_logs: str = "execution_logs"
    """Execution log of the last attempt."""
    worker_hostname: str = "worker_hostname"
    """Name of the worker that processed it last; informational."""
    cancel: str = "cancel"
    """Set it to have the row cancelled."""
    lease_token: str = "lease_token"  # noqa: S105
    """Fencing token: a new number for every claim."""

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        for field in fields(self):
            name = getattr(self, field.name)
            if not isinstance(name, str):
                raise ConfigError(f"the name of column {field.name} must be text, got {name!r}")
            identifier(name)
            if name in taken:
                raise ConfigError(f"columns {taken[name]} and {field.name} are both named {name!r}; rename one of them")
            taken[name] = field.name

    def items(self) -> list[tuple[str, str]]:
        """Yield the role of each column, and its name."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


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
        words = " or ".join(dict.fromkeys(type_name(each) for each in need.types))
        fix = (
            f"run `{change} type {need.ddl.split(' not null')[0].split(' default')[0]}`"
            if role != "id"
            else "change it"
        )
        wrong.append(f"column {called} of table {table} is {type_name(column.type)}, it must be {words}; {fix}")
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


def type_name(type: str) -> str:
    """Return the name of a type as DDL writes it.

    >>> type_name("int8"), type_name("_json")
    ('bigint', 'json[]')
    """
    plain = {"int2": "smallint", "int4": "integer", "int8": "bigint", "bool": "boolean", "varchar": "varchar"}
    return f"{type[1:]}[]" if type.startswith("_") else plain.get(type, type)


def refuse(table: str, wrong: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if anything is wrong."""
    if wrong:
        raise ConfigError(f"table {table} cannot be worked on: " + "\n  ".join(["", *wrong]).strip())
