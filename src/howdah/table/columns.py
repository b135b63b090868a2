"""The columns that a work queue table must have (the contract), and their names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from howdah.errors import ConfigError
from howdah.postgres.sql import identifier

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
