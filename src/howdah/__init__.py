"""All the background work of an application, on the PostgreSQL it already has."""

from howdah.app import Howdah
from howdah.errors import (
    ArgumentError,
    ConfigError,
    DatabaseUnreachable,
    HowdahError,
    LeaseLost,
    Poison,
    Retry,
    SchemaError,
    TransactionLost,
)
from howdah.job import Job, State, current_job
from howdah.jobs.new import Enqueued, NewJob
from howdah.outcome import Cancel, Outcome, Snooze
from howdah.retry import Backoff
from howdah.store import Transaction
from howdah.task import Task
from howdah.upkeep.pruner import Retention
from howdah.version import __version__
from howdah.work.options import WorkerOptions

__all__ = [
    "ArgumentError",
    "Backoff",
    "Cancel",
    "ConfigError",
    "DatabaseUnreachable",
    "Enqueued",
    "Howdah",
    "HowdahError",
    "Job",
    "LeaseLost",
    "NewJob",
    "Outcome",
    "Poison",
    "Retention",
    "Retry",
    "SchemaError",
    "Snooze",
    "State",
    "Task",
    "Transaction",
    "TransactionLost",
    "WorkerOptions",
    "__version__",
    "current_job",
]
