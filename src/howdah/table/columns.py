"""Columns: what a table must have to be worked on, and under which names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from howdah.errors import ConfigError
from howdah.pg.sql import identifier

NUMBERS = ("int2", "int4", "int8")
TEXTS = ("text", "varchar")
TIMES = ("timestamptz",)


@dataclass(frozen=True, slots=True)
class Need:
    """What is asked of one column."""

    types: tuple[str, ...]
    ddl: str
    """How to declare it."""
    nullable: bool = False
    """Whether null is written to it."""


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
"""The contract. ``lease_token`` is the fence: who claimed the row last; every write of a worker checks it."""

STATES = ("queued", "processing", "errored", "failed", "completed", "canceled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The names a table has for the columns of the contract: ``Columns(state="status")``."""

    id: str = "id"
    """The key: a number, uuid or text."""
    state: str = "state"
    """``queued processing errored failed completed canceled``, as text or enum."""
    failure_message: str = "failure_message"
    """Why the last attempt failed."""
    queued_at: str = "queued_at"
    """Since when the row waits."""
    started_at: str = "started_at"
    """When the last attempt began."""
    finished_at: str = "finished_at"
    """When the last attempt ended."""
    process_after: str = "process_after"
    """Not before this."""
    num_resets: str = "num_resets"
    """How often a worker went silent over this row."""
    num_failures: str = "num_failures"
    """How many attempts failed."""
    last_heartbeat_at: str = "last_heartbeat_at"
    """When its worker was last heard of."""
    execution_logs: str = "execution_logs"
    """What the last attempt logged."""
    worker_hostname: str = "worker_hostname"
    """Who worked on it last; for people."""
    cancel: str = "cancel"
    """Set it to have the row cancelled."""
    lease_token: str = "lease_token"  # noqa: S105
    """The fence: another random number for every claim."""

    def __post_init__(self) -> None:
        taken: dict[str, str] = {}
        for field in fields(self):
            name = getattr(self, field.name)
            if not isinstance(name, str):
                raise ConfigError(f"the name of column {field.name} must be text, got {name!r}")
            identifier(name)
            if name in taken:
                raise ConfigError(f"columns {taken[name]} and {field.name} are both named {name!r}; one needs another")
            taken[name] = field.name

    def items(self) -> list[tuple[str, str]]:
        """What each column is for, and its name."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]
