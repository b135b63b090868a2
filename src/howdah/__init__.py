"""All the background work of an application, on the PostgreSQL it already has."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from howdah.version import __version__

if TYPE_CHECKING:
    from howdah.app import Howdah
    from howdah.errors import (
        ArgumentError,
        CodedError,
        ConfigError,
        ConsecutiveFailures,
        DatabaseFull,
        DatabaseUnreachable,
        EventError,
        HowdahError,
        KeyHeld,
        LeaseLost,
        NoEvents,
        Poison,
        RateLimited,
        Retry,
        SchemaError,
        StreamConflict,
        TransactionLost,
    )
    from howdah.events.event import Appended, Event, NewEvent, current_event
    from howdah.job import Enqueued, Job, NewJob, State, current_job
    from howdah.maintenance.pruner import Retention
    from howdah.outcome import Cancel, Outcome, Snooze
    from howdah.retry import Backoff
    from howdah.secrets import Secret
    from howdah.store import Transaction
    from howdah.table.budget import Budget
    from howdah.table.contract import Columns
    from howdah.table.statement import Where
    from howdah.task import Task
    from howdah.worker.job_log import job_log, progress
    from howdah.worker.options import WorkerOptions

__all__ = [
    "Appended",
    "ArgumentError",
    "Backoff",
    "Budget",
    "Cancel",
    "CodedError",
    "Columns",
    "ConfigError",
    "ConsecutiveFailures",
    "DatabaseFull",
    "DatabaseUnreachable",
    "Enqueued",
    "Event",
    "EventError",
    "Howdah",
    "HowdahError",
    "Job",
    "KeyHeld",
    "LeaseLost",
    "NewEvent",
    "NewJob",
    "NoEvents",
    "Outcome",
    "Poison",
    "RateLimited",
    "Retention",
    "Retry",
    "SchemaError",
    "Secret",
    "Snooze",
    "State",
    "StreamConflict",
    "Task",
    "Transaction",
    "TransactionLost",
    "Where",
    "WorkerOptions",
    "__version__",
    "current_event",
    "current_job",
    "job_log",
    "progress",
]

# A name is loaded when it is first used: the test plugin and the command line start without the whole of it.
_HOMES = {
    "howdah.app": ("Howdah",),
    "howdah.errors": (
        "ArgumentError",
        "CodedError",
        "ConfigError",
        "ConsecutiveFailures",
        "DatabaseFull",
        "DatabaseUnreachable",
        "EventError",
        "HowdahError",
        "KeyHeld",
        "LeaseLost",
        "NoEvents",
        "Poison",
        "RateLimited",
        "Retry",
        "SchemaError",
        "StreamConflict",
        "TransactionLost",
    ),
    "howdah.worker.job_log": ("job_log", "progress"),
    "howdah.job": ("Enqueued", "Job", "NewJob", "State", "current_job"),
    "howdah.events.event": ("Appended", "Event", "NewEvent", "current_event"),
    "howdah.outcome": ("Cancel", "Outcome", "Snooze"),
    "howdah.retry": ("Backoff",),
    "howdah.secrets": ("Secret",),
    "howdah.store": ("Transaction",),
    "howdah.table.budget": ("Budget",),
    "howdah.table.contract": ("Columns",),
    "howdah.table.statement": ("Where",),
    "howdah.task": ("Task",),
    "howdah.maintenance.pruner": ("Retention",),
    "howdah.worker.options": ("WorkerOptions",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'howdah' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
