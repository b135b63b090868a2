"""Handlers: the user's functions with their settings and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Literal

import msgspec

from howdah.arguments import Arguments
from howdah.errors import ConfigError, Poison
from howdah.job import LONGEST_NAME, PLATFORM_PREFIX, PLATFORM_QUEUE, Job
from howdah.outcome import Ack
from howdah.redact import handler_secrets, spellings
from howdah.retry import Backoff, Retries
from howdah.secrets import leaves, marks
from howdah.store import Transaction

Executor = Literal["async", "thread", "process"]


class Handler:
    """One kind of job and the function that executes it."""

    has_after = False
    timeout: float | None = None
    """Timeout of jobs that have none, in seconds: those that were enqueued by SQL or over HTTP."""
    cost = 1
    """Slots an attempt occupies."""
    batch = 0
    """Jobs in one call at most; 0: each job is a call of its own."""
    within = 0.0
    """Seconds that a job waits for a full batch."""
    ends_within = 0.0
    """Seconds a cancelled attempt may take to clean up; its job is not released before that."""

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        *,
        executor: Executor | None = None,
        transactional: bool = False,
        retries: Retries | None = None,
        cost: int = 1,
    ) -> None:
        check_name("kind", kind)
        if kind.startswith(PLATFORM_PREFIX) and not isinstance(self, PlatformHandler):
            raise ConfigError(f"names that start with {PLATFORM_PREFIX!r} are reserved, got {kind!r}; choose another")
        if not isinstance(cost, int) or isinstance(cost, bool) or cost < 1:
            raise ConfigError(f"the cost of task {kind!r} must be a whole number of slots of at least 1, got {cost!r}")
        self.cost = cost
        self.kind = kind
        check_body(f"task {kind!r}", function)
        self.function = function
        self.ends_within = float(getattr(function, "ends_within", 0.0))
        is_async = inspect.iscoroutinefunction(function)
        if executor == "async" and not is_async:
            raise ConfigError(f"task {kind!r} has executor='async' but is a plain function; write `async def`")
        if executor == "thread" and is_async:
            raise ConfigError(f"task {kind!r} has executor='thread' but is a coroutine function; write `def`")
        self.executor: Executor = executor or ("async" if is_async else "thread")
        self.transactional = transactional
        self.plain = self.executor == "async" and not transactional and not self.has_after
        self.retries: Retries = retries if retries is not None else Backoff()
        self.arguments = self.read_signature(kind, function)
        self.secrets = self.arguments.secrets
        if transactional and self.executor != "async":
            raise ConfigError(f"task {kind!r} is transactional, so it must be `async def` without an executor")
        if transactional and "tx" not in self.arguments.injected:
            raise ConfigError(f"task {kind!r} is transactional, so it must take a parameter annotated `Transaction`")
        if not transactional and "tx" in self.arguments.injected:
            raise ConfigError(f"task {kind!r} takes a Transaction; set transactional=True")

    def read_signature(self, kind: str, function: Callable[..., Any]) -> Arguments:
        """Return the parameters of the function."""
        return Arguments(kind, function, {Transaction: "tx"})

    def call(self, job: Job, extra: Mapping[str, Any] | None = None) -> Any:
        """Call the function for this job, with the injected objects."""
        if job.meta_json is not None or self.secrets:
            keep_secret(job, self.secrets)
        return self.arguments.call(job.payload, extra)

    async def after(self, job: Job, ack: Ack) -> None:
        """Hook that runs after every attempt, whatever its outcome, if ``has_after``."""

    def __repr__(self) -> str:
        return f"Handler({self.kind!r}, {self.executor})"


class PlatformHandler(Handler):
    """A handler of Howdah itself. It runs only jobs of the reserved queue.

    A job of such a kind in another queue was not enqueued by Howdah, and could ask for anything.
    """

    def call(self, job: Job, extra: Mapping[str, Any] | None = None) -> Any:
        if job.queue != PLATFORM_QUEUE:
            raise Poison(
                f"jobs of kind {self.kind!r} run only in queue {PLATFORM_QUEUE!r}, this one is in {job.queue!r}"
            )
        return super().call(job, extra)


def keep_secret(job: Job, secrets: Sequence[str] = ()) -> None:
    """Redact the secrets of this job, from these pointers and its metadata, in all text stored from here on."""
    if found := secrets_of(job, secrets):
        handler_secrets.set(found)


def secrets_of(job: Job, secrets: Sequence[str]) -> Sequence[str]:
    """Return the secrets of a job, at these pointers and those in its metadata, in all spellings."""
    places = (*secrets, *marks(job.meta_json))
    if not places:
        return ()
    try:
        return spellings(leaves(msgspec.json.decode(job.payload), places))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()  # the payload is invalid, so the handler does not receive it either


def check_body(what: str, function: object) -> None:
    """Reject generator functions: calling one runs nothing of its body."""
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - the method itself is wanted
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise ConfigError(f"{what} has a `yield`, so calling it would not run its body; return the result instead")


def is_unfinished(value: object) -> bool:
    """Return whether a handler returned a coroutine or a generator, which has yet to run, instead of a result."""
    kind = type(value)  # not isinstance: it runs code of the value, which may raise
    try:
        return hasattr(kind, "__await__") or issubclass(kind, GeneratorType | AsyncGeneratorType)
    except Exception:  # its metaclass may override the check
        return False


async def finished(value: Any) -> Any:
    """Await the returned value until it is a result; raises :class:`TypeError` for a generator."""
    while is_unfinished(value):
        if not inspect.isawaitable(value):
            raise TypeError(f"the handler returned a {type(value).__name__}, so its body did not run; return a result")
        value = await value
    return value


def check_name(what: str, name: object) -> str:
    """Reject a name that cannot be the ``what`` (kind, queue, key) of a job."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"{what} must be 1 to {LONGEST_NAME} printable characters, got {name!r}")
    return name


def check_label(label: object) -> str:
    """Reject an invalid label."""
    if (
        not isinstance(label, str)
        or not 1 <= len(label) <= 50
        or not label.isprintable()
        or "+" in label
        or "," in label
    ):
        raise ConfigError(f"a label is 1 to 50 printable characters without '+' or ',', got {label!r}")
    return label
