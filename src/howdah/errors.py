"""The exceptions that Howdah raises, and error codes: classes of failures that decide how often a job is retried.

    HowdahError
    ├── ConfigError            invalid configuration or use
    ├── ArgumentError          invalid arguments; nothing was enqueued
    ├── DatabaseUnreachable    no answer from PostgreSQL
    │   └── DatabaseFull       the server has no room left; nothing was changed
    ├── KeyHeld                another open transaction holds the unique key; nothing was enqueued
    ├── SchemaError            the database is not at the version this code needs
    ├── LeaseLost              the lease of the job or of the consumer was lost
    ├── TransactionLost        the server ended the transaction of a job
    ├── StreamConflict         the stream is not at the version the append expected
    ├── NoEvents               an append without events
    ├── EventError             an event cannot be written or read
    └── ConsecutiveFailures    a consumer failed too often with ``on_failure="stop_worker"``

    Poison                     raised by a handler: do not retry this job
    Retry                      raised by a handler: retry after this delay
    CodedError                 raised by a handler: failed, with an error code
    └── RateLimited            a rate limit of a dependency was hit

A handler that fails raises its own exception; Howdah never wraps it.
"""

from __future__ import annotations


class HowdahError(Exception):
    """Base class of the exceptions Howdah raises."""


class ConfigError(HowdahError):
    """Invalid configuration or use of the API; the message says why and what to change."""


class ArgumentError(HowdahError, ValueError):
    """The arguments of a job are invalid; nothing was enqueued."""


class DatabaseUnreachable(HowdahError):
    """PostgreSQL did not answer."""


class DatabaseFull(DatabaseUnreachable):
    """PostgreSQL has no room left on its disk, in its memory or for another connection; nothing was changed."""


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
    """The lease of the job, or of the consumer's partition, was lost; another node may hold it."""


class TransactionLost(HowdahError):
    """The server ended the transaction of a job, so everything it wrote was rolled back."""


class StreamConflict(HowdahError):
    """The stream is not at the version the append expected; nothing was appended. Read it again and retry."""


class NoEvents(HowdahError, ValueError):
    """An append without events."""


class EventError(HowdahError, ValueError):
    """An event cannot be written or read; the message says why."""


class ConsecutiveFailures(HowdahError):
    """A consumer with ``on_failure="stop_worker"`` failed too often in a row, so the node stops."""


ERROR_CODES: dict[str, int | None] = {
    "RATE_LIMITED": None,
    "AUTH_FAILED": 0,
    "TIMEOUT": None,
    "AGENT_ERROR": 2,
    "INVALID_SPEC": 0,
    "STALE_WORKER": None,
}
"""Maximum number of retries of each code; ``None``: limited only by the attempts of the job."""


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
    """Raise it in a handler to fail with an error code, which decides whether the job is retried.

    ``code`` is RATE_LIMITED, AUTH_FAILED, TIMEOUT, AGENT_ERROR or INVALID_SPEC. ``hold``: no node
    claims this kind of job until the retry is due, or for this many seconds.
    """

    def __init__(
        self, reason: str = "", *, code: str, retry_after: float | None = None, hold: bool | float = False
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.retry_after = retry_after
        self.hold = hold


class RateLimited(CodedError):
    """Raise it in a handler when a rate limit of a dependency was hit."""

    def __init__(self, reason: str = "", *, retry_after: float | None = None, hold: bool | float = False) -> None:
        super().__init__(reason, code="RATE_LIMITED", retry_after=retry_after, hold=hold)


def coded(code: str, message: str, *, retry_after: float | None = None, hold: bool = False) -> CodedError:
    """Make an error with this code; only RATE_LIMITED keeps the delay and the hold of its kind on all nodes."""
    limited = code == "RATE_LIMITED"
    return CodedError(message, code=code, retry_after=retry_after if limited else None, hold=hold and limited)


def code_of(error: BaseException) -> str | None:
    """Return the ``code`` attribute of an error if it is a known error code."""
    try:
        code = getattr(error, "code", None)
    except Exception:  # code may be a property that raises
        return None
    kind = type(code)  # not isinstance: it runs code of the value, which may raise
    if not issubclass(kind, str):
        return None
    code = str.__str__(code)  # a subclass may override __str__
    return code if code in ERROR_CODES else None


def retries(code: str | None, attempt: int) -> bool:
    """Return whether an error with this code is retried after this many attempts.

    >>> retries("AUTH_FAILED", 1), retries("AGENT_ERROR", 2), retries("AGENT_ERROR", 3), retries(None, 7)
    (False, True, False, True)
    """
    most = ERROR_CODES.get(code) if code else None
    return most is None or attempt <= most
