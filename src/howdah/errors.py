"""Everything Howdah raises, in one tree.

    HowdahError
    ├── ConfigError            what you asked for cannot work
    ├── ArgumentError          these arguments cannot be enqueued; nothing was
    ├── DatabaseUnreachable    no answer from PostgreSQL
    │   └── DatabaseFull       it answered that it has no room left; nothing happened
    ├── KeyHeld                another open transaction holds the unique key; nothing was enqueued
    ├── SchemaError            the database is not at the version this code needs
    ├── LeaseLost              the job, or the share of a consumer, is no longer ours
    ├── TransactionLost        the server ended the transaction of a job
    ├── StreamConflict         the stream is not at the version the append expected
    ├── NoEvents               an append without events
    ├── EventError             an event cannot be written or read as asked
    └── ConsecutiveFailures    a consumer failed too often, and stops the node as it was told to

    Poison                     raised by a handler: never retry this job
    Retry                      raised by a handler: retry, after this long
    CodedError                 raised by a handler: failed, and of which class
    └── RateLimited            what it needs answered "not so fast"

A handler that fails raises its own exception; Howdah never wraps it.
"""

from __future__ import annotations


class HowdahError(Exception):
    """The root of everything Howdah raises by itself."""


class ConfigError(HowdahError):
    """What you asked for cannot work; the message says why and what to change."""


class ArgumentError(HowdahError, ValueError):
    """The arguments of a job cannot be sent as they are; nothing was enqueued."""


class DatabaseUnreachable(HowdahError):
    """PostgreSQL did not answer."""


class DatabaseFull(DatabaseUnreachable):
    """PostgreSQL has no room left on its disk, in its memory or for another connection; nothing happened."""


class KeyHeld(HowdahError):
    """Another transaction that is still open holds the unique key; nothing was enqueued. Try again later."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"another transaction that is still open holds the key {key!r}, so nothing was enqueued; try again when it"
            " has ended"
        )
        self.key = key


class SchemaError(HowdahError):
    """The database is not at the version this code needs."""


class LeaseLost(HowdahError):
    """The job, or the share of a consumer, is no longer ours: somebody else may hold it."""


class TransactionLost(HowdahError):
    """The server ended the transaction of a job, and with it everything it wrote."""


class StreamConflict(HowdahError):
    """The stream is not at the version the append expected; nothing was appended. Read it again and decide anew."""


class NoEvents(HowdahError, ValueError):
    """An append was asked for without events."""


class EventError(HowdahError, ValueError):
    """An event cannot be written, or read, as it was asked; the message says why."""


class ConsecutiveFailures(HowdahError):
    """A consumer with ``on_failure="stop_worker"`` failed too often in a row, so the node stops."""


class Poison(Exception):
    """Raise it in a handler when no retry can help: the job fails at once."""


class Retry(Exception):
    """Raise it in a handler to retry after ``after`` seconds instead of the task's own backoff.

    Any exception with a ``retry_after`` attribute (seconds) is understood the same way.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = after


class CodedError(Exception):
    """Raise it in a handler to say of which class a failure is; the class decides whether a retry is of use.

    ``code`` is RATE_LIMITED, AUTH_FAILED, TIMEOUT, AGENT_ERROR or INVALID_SPEC. ``hold``: all nodes leave
    this kind of job alone until it is time to try again, or for so many seconds.
    """

    def __init__(
        self, reason: str = "", *, code: str, retry_after: float | None = None, hold: bool | float = False
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.retry_after = retry_after
        self.hold = hold


class RateLimited(CodedError):
    """Raise it in a handler when what it needs answered "not so fast"."""

    def __init__(self, reason: str = "", *, retry_after: float | None = None, hold: bool | float = False) -> None:
        super().__init__(reason, code="RATE_LIMITED", retry_after=retry_after, hold=hold)
