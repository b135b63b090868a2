"""DDL of work queue tables, as statements to print. Nothing here executes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from howdah.postgres.sql import identifier, literal
from howdah.table.contract import NEEDS, STATES, Columns, Relation
from howdah.table.options import TableOptions
from howdah.table.statement import build, channel, unquote

WAITING = ("queued", "errored")
LIVE = {*WAITING, "processing"}
_DECLARED = re.compile(r"(.+?)(?: not null)?(?: default (.+))?")
_NEGATED = re.compile(r"<>|\bNOT\b")
_LONGEST = 63


class Key(NamedTuple):
    """One column of an index."""

    column: str
    descending: bool = False
    nulls_first: bool = False

    def render(self) -> str:
        """As SQL, quoted."""
        nulls = "" if self.nulls_first == self.descending else " nulls first" if self.nulls_first else " nulls last"
        return identifier(self.column) + (" desc" if self.descending else "") + nulls


class Index(NamedTuple):
    """An existing index."""

    name: str
    is_primary: bool
    columns: list[str]
    descending: list[bool]
    nulls_first: list[bool]
    predicate: str | None
    speaks_of: list[str]
    """The columns in it and in its predicate."""

    def ordered_by(self, order: Sequence[Key]) -> bool:
        """Return whether it can be scanned in this order, forwards or backwards."""
        keys = [Key(*key) for key in zip(self.columns, self.descending, self.nulls_first, strict=True)]
        backwards = [Key(key.column, not key.descending, not key.nulls_first) for key in order]
        return keys[: len(order)] in (list(order), backwards)

    def holds(self, states: Collection[str], *columns: str) -> bool:
        """Return whether it covers these states and no finished rows; its condition is on these columns only."""
        about = set(self.speaks_of)
        if columns[0] not in about or about - {*columns, *self.columns} or _NEGATED.search(self.predicate or ""):
            return False
        found = set(re.findall(r"'((?:''|[^'])*)'", re.sub(r'"(?:""|[^"])*"', "", self.predicate or "")))
        return found.issuperset(states) and found <= LIVE

    def finds_due(self, columns: Columns) -> bool:
        """Return whether the due rows can be read in it without those that are scheduled for later."""
        return self.columns[:1] == [columns.process_after] and self.holds(
            WAITING, columns.state, columns.process_after, *self.columns
        )


def declared(role: str) -> tuple[str, str | None]:
    """Return the type of a column of the contract, and its default if it needs one.

    >>> declared("state"), declared("process_after")
    (('text', "'queued'"), ('timestamptz', None))
    """
    match = _DECLARED.fullmatch(NEEDS[role].ddl)
    assert match is not None
    return match[1], match[2]


def claim_order(options: TableOptions, known: Collection[str]) -> list[Key]:
    """Return the columns a claim is ordered by, the id last."""
    keys = []
    for order in options.orders:
        nulls_first = order.nulls == "first" if order.nulls else order.descending
        keys.append(Key(order.column(known) or unquote(order.word), order.descending, nulls_first))
    return keys if options.columns.id in [key.column for key in keys] else [*keys, Key(options.columns.id)]


def create(options: TableOptions) -> list[str]:
    """Return the statements for a complete table with its indexes."""
    relation, columns = options.relation, options.columns
    lines = {name: NEEDS[role].ddl for role, name in columns.items()}
    order = claim_order(options, lines)
    for key in order:
        lines.setdefault(key.column, "integer not null default 0")
    for name in options.budget.cost.values() if options.budget else ():
        lines.setdefault(name, "integer not null default 0")
    body = ",\n".join(f"    {identifier(name)} {ddl}" for name, ddl in lines.items())
    name = relation.parts[-1]
    return [
        f"create table {relation.quoted} (\n{body}\n)",
        waiting_index(relation.quoted, index_name(name, "waiting"), columns, order),
        processing_index(relation.quoted, index_name(name, "processing"), columns),
        cancel_index(relation.quoted, index_name(name, "cancel"), columns),
    ]


def waiting_index(table: str, name: str, columns: Columns, order: Sequence[Key]) -> str:
    """Return the index for claims: waiting rows, in the order of the claim."""
    return _index(table, name, order, _waits(columns))


def scheduled_index(table: str, name: str, columns: Columns) -> str:
    """Return the index for finding due rows beside many that are scheduled for later."""
    return _index(table, name, [Key(columns.process_after)], _waits(columns))


def processing_index(table: str, name: str, columns: Columns) -> str:
    """Return the index for finding silent workers. By id: an index on the heartbeat would make heartbeats expensive."""
    return _index(table, name, [Key(columns.id)], f"{identifier(columns.state)} = 'processing'")


def cancel_index(table: str, name: str, columns: Columns) -> str:
    """Return the index for finding waiting rows to be cancelled; it is almost always empty."""
    return _index(table, name, [Key(columns.id)], f"{identifier(columns.cancel)} and {_waits(columns)}")


def id_index(table: Relation, name: str, id: str) -> str:
    """Return the index on the id; on a partitioned table it cannot be unique."""
    unique = "unique " if table.kind == "r" else ""
    return f"create {unique}index if not exists {identifier(name)} on {table.quoted} ({identifier(id)})"


def index_name(table: str, what: str) -> str:
    """Return a name for an index of this table, within PostgreSQL's length limit.

    >>> index_name("uploads", "waiting"), len(index_name("ü" * 31, "waiting").encode())
    ('uploads_waiting', 62)
    """
    room = _LONGEST - len(what) - 1
    return table.encode()[:room].decode(errors="ignore") + "_" + what


def add_column(table: Relation, role: str, name: str, *, keyed: bool) -> str:
    """Add a column of the contract; ``keyed``: there is a primary key already."""
    ddl = NEEDS[role].ddl
    if role == "id" and table.kind == "p":
        ddl = "uuid not null default gen_random_uuid()"  # A primary key would need the partition columns.
    elif role == "id" and keyed:
        ddl = ddl.replace("primary key", "unique")
    return f"alter table {table.quoted} add column if not exists {identifier(name)} {ddl}"


def change_type(table: Relation, role: str, name: str, have: str) -> list[str]:
    """Change a column to its type in the contract; nothing when its values cannot be converted."""
    (type, default), column = declared(role), identifier(name)
    if role == "id" or not _converts(have, type):
        return []
    parts = [f"alter column {column} drop default", f"alter column {column} type {type} using {column}::{type}"]
    parts += [f"alter column {column} set default {default}"] if default else []
    return [f"alter table {table.quoted} {', '.join(parts)}"]


def alter_column(table: Relation, name: str, how: str) -> str:
    """Change one column."""
    return f"alter table {table.quoted} alter column {identifier(name)} {how}"


def allow_states(
    table: Relation, columns: Columns, constraint: str, condition: str, states: Sequence[str]
) -> list[str]:
    """Replace a constraint by one that allows more states."""
    change, more = f"alter table {table.quoted}", ", ".join(map(literal, states))
    widened = f"check (({condition}) or {identifier(columns.state)} in ({more}))"
    return [
        f"{change} drop constraint if exists {identifier(constraint)}",
        f"{change} add constraint {identifier(constraint)} {widened}",
    ]


def add_labels(enum: str, labels: Collection[str]) -> list[str]:
    """Add missing states to an enum."""
    return [f"alter type {enum} add value if not exists {literal(state)}" for state in STATES if state not in labels]


def trigger(table: Relation, columns: Columns) -> str:
    """Return the trigger that wakes nodes when the table gets work."""
    names = {
        **dict(columns.items()),
        "namespace": table.namespace,
        "table": table.name,
        "function": index_name(table.name, "wake"),
        "channel": channel(table.quoted),
    }
    text = build("trigger", names)
    return text[text.index("\ncreate ") + 1 :].rstrip().removesuffix(";")  # Without the comment at the top of the file.


def script(statements: Sequence[str]) -> str:
    """Join statements to one script."""
    return "".join(f"{each};\n" for each in statements)


def concurrently(text: str) -> str:
    """Change a script so that its indexes are created without locking writes; not possible on partitioned tables."""
    return re.sub(r"(?m)^(create (?:unique )?index) (?=if not exists)", r"\1 concurrently ", text)


def remark(text: str) -> str:
    """A comment; names in it cannot end it.

    >>> remark("column 'a\\n; drop table b'")
    "-- column 'a ; drop table b'"
    """
    return "-- " + " ".join(text.split())


def _converts(have: str, type: str) -> bool:
    if type == "text" or have in ("text", "varchar"):
        return type != "json[]"
    groups = (("int2", "int4", "int8", "numeric"), ("integer", "bigint")), (("timestamp", "date"), ("timestamptz",))
    return any(have in froms and type in tos for froms, tos in groups)


def _waits(columns: Columns) -> str:
    return f"{identifier(columns.state)} in ({', '.join(map(literal, WAITING))})"


def _index(table: str, name: str, keys: Sequence[Key], condition: str) -> str:
    columns = ", ".join(key.render() for key in keys)
    return f"create index if not exists {identifier(name)} on {table} ({columns}) where {condition}"
