"""Handler: the user's function with everything needed to run it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Literal

import msgspec

from howdah.arguments import Arguments
from howdah.errors import ConfigError
from howdah.job import Job
from howdah.outcome import Ack
from howdah.retry import Backoff, Retries
from howdah.scrub import spellings, told
from howdah.secret import leaves, marks
from howdah.store import Transaction

Executor = Literal["async", "thread", "process"]
LONGEST_NAME = 100


class Handler:
    """One kind of job and the function that executes it."""

    has_after = False
    cost = 1
    """Slots an attempt takes."""
    ends_within = 0.0
    """Seconds a cancelled attempt may take to end what it started; its job is not given to others before."""

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
        if not isinstance(cost, int) or isinstance(cost, bool) or cost < 1:
            raise ConfigError(f"the cost of task {kind!r} is a number of slots from 1 on, got {cost!r}")
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
        self.arguments = Arguments(kind, function, {Transaction: "tx"})
        self.secrets = self.arguments.secrets
        if transactional and self.executor != "async":
            raise ConfigError(f"task {kind!r} is transactional, so it must be `async def` without an executor")
        if transactional and "tx" not in self.arguments.injected:
            raise ConfigError(f"task {kind!r} is transactional, so it must take a parameter annotated `Transaction`")
        if not transactional and self.arguments.injected:
            raise ConfigError(f"task {kind!r} takes a Transaction; say transactional=True")

    def call(self, job: Job, extra: Mapping[str, Any] | None = None) -> Any:
        """Call the function for this job, with what is injected."""
        if job.meta_json is not None or self.secrets:
            keep_secret(job, self.secrets)
        return self.arguments.call(job.payload, extra)

    async def after(self, job: Job, ack: Ack) -> None:
        """Called when an attempt is over, however it ended, if ``has_after``."""

    def __repr__(self) -> str:
        return f"Handler({self.kind!r}, {self.executor})"


def keep_secret(job: Job, secrets: Sequence[str] = ()) -> None:
    """From here on no text that is kept shows the secrets of this job: those named, and those it is marked with."""
    places = (*secrets, *marks(job.meta_json))
    if not places:
        return
    try:
        told.set(spellings(leaves(msgspec.json.decode(job.payload), places)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # it cannot be read, so the handler will not see it either


def check_body(what: str, function: object) -> None:
    """Refuse functions with ``yield`` in them: to call one makes a generator and runs nothing of its body."""
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - the method itself is wanted
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise ConfigError(f"{what} has a `yield`, so to call it would not run it; return the result, without yield")


def is_unfinished(value: object) -> bool:
    """Whether a handler returned something that has yet to run, a coroutine or a generator, instead of a result."""
    kind = type(value)  # not isinstance: that asks the value itself, whose code may raise
    try:
        return hasattr(kind, "__await__") or issubclass(kind, GeneratorType | AsyncGeneratorType)
    except Exception:  # its class has code of its own
        return False


async def finished(value: Any) -> Any:
    """Await what a handler returned until it is a result; a generator is a :class:`TypeError`: its body did not run."""
    while is_unfinished(value):
        if not inspect.isawaitable(value):
            raise TypeError(f"the handler returned a {type(value).__name__}, so its body did not run; return a result")
        value = await value
    return value


def check_name(what: str, name: object) -> str:
    """Refuse names that cannot be the ``what`` of a job."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"{what} must be 1 to {LONGEST_NAME} printable characters, got {name!r}")
    return name
