"""Batch handlers: functions that are called once with many jobs of their kind."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from howdah.arguments import Arguments
from howdah.errors import ConfigError, Poison
from howdah.handler import Executor, Handler, secrets_of
from howdah.job import Job
from howdah.redact import handler_secrets
from howdah.retry import Retries
from howdah.store import Transaction

LARGEST_BATCH = 10_000
"""Jobs in one call at most."""
LONGEST_WITHIN = 3600.0
"""Seconds that a job may wait for others at most."""
SEQUENCES = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
"""Types of a parameter that receives one element per job."""
INJECTED = {
    Transaction: "tx",
    list[Job]: "jobs",
    typing.List[Job]: "jobs",  # noqa: UP006 - another object than list[Job]
    collections.abc.Sequence[Job]: "jobs",
    typing.Sequence[Job]: "jobs",
}


class CallsBatches(Protocol):
    """A handler whose ``batch`` is not 0, as a worker runs it: of a task or of a table."""

    executor: Executor
    transactional: bool

    @property
    def has_after(self) -> bool: ...

    def read(self, job: Job) -> Any:
        """Return the arguments of one job as :meth:`call_batch` takes them; raises if they do not fit."""
        ...

    def keep_secrets(self, jobs: Sequence[Job]) -> None:
        """Redact the secrets of all these jobs in all text stored from here on."""
        ...

    def call_batch(self, jobs: Sequence[Job], items: Sequence[Any], tx: Transaction | None = None) -> Any:
        """Call the function once for all these jobs."""
        ...


class BatchHandler(Handler):
    """One kind of job and the function that executes many jobs of it in one call.

    Each parameter is a list with one element per job: the argument of that name. A parameter annotated
    ``list[Job]`` receives the jobs themselves.
    """

    arguments: BatchArguments

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        *,
        batch: int,
        within: float = 0.0,
        executor: Executor | None = None,
        transactional: bool = False,
        retries: Retries | None = None,
        cost: int = 1,
    ) -> None:
        super().__init__(kind, function, executor=executor, transactional=transactional, retries=retries, cost=cost)
        if self.executor == "process":
            raise ConfigError(f"task {kind!r} has a batch, so it cannot have executor='process'; leave it out")
        self.batch, self.within = check_batch(f"task {kind!r}", batch, within)
        self.plain = False

    def read_signature(self, kind: str, function: Callable[..., Any]) -> BatchArguments:
        return BatchArguments(kind, function)

    def read(self, job: Job) -> Any:
        return self.arguments.read(job.payload)

    def keep_secrets(self, jobs: Sequence[Job]) -> None:
        keep_secrets(jobs, self.secrets)

    def call_batch(self, jobs: Sequence[Job], items: Sequence[Any], tx: Transaction | None = None) -> Any:
        return self.arguments.call_batch(jobs, items, tx)


class BatchArguments(Arguments):
    """The parameters of a batch handler; a job has one element of each."""

    def __init__(self, kind: str, function: Callable[..., Any]) -> None:
        super().__init__(kind, function, INJECTED)
        parameters = inspect.signature(function).parameters.items()
        self._by_position = [name for name, each in parameters if each.kind is not each.KEYWORD_ONLY]
        self.free = not self._names
        """True if the function takes only jobs: then their arguments are not checked."""
        if self.free:
            if "jobs" not in self.injected:
                raise ConfigError(f"task {kind!r} has a batch, so it must take a list, such as `items: list[int]`")
            self._read = msgspec.json.Decoder(dict[str, Any]).decode
            self._takes_null = True

    def argument(self, name: str, hint: Any, default: Any) -> Any:
        """Return the type of one element of a parameter."""
        if default is not inspect.Parameter.empty:
            raise ConfigError(f"task {self.kind!r} has a batch, so its parameter {name!r} cannot have a default")
        if hint is Any or hint is list:
            return Any
        if typing.get_origin(hint) not in SEQUENCES:
            raise ConfigError(
                f"task {self.kind!r} has a batch, so its parameter {name!r} must be a list with one element per job,"
                f" such as list[int]; it is {inspect.formatannotation(hint)}"
            )
        return typing.get_args(hint)[0]

    def read(self, payload: bytes) -> Any:
        """Decode a payload, or raise :class:`Poison`."""
        try:
            return self._read(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Poison(str(self._misfit(error))) from None

    def call_batch(self, jobs: Sequence[Job], items: Sequence[Any], tx: Transaction | None) -> Any:
        """Call the function with the columns of these decoded payloads and the injected objects."""
        named: dict[str, Any] = {name: [getattr(item, name) for item in items] for name in self._names}
        for what, value in (("jobs", jobs), ("tx", tx)):
            if what in self.injected:
                named[self.injected[what]] = value
        values = [named.pop(name) for name in self._by_position]
        return self._function(*values, **named)


def keep_secrets(jobs: Sequence[Job], secrets: Sequence[str]) -> None:
    """Redact the secrets of jobs, from these pointers and their metadata, in all text stored from here on."""
    if secrets or any(job.meta_json is not None for job in jobs):
        found = {text for job in jobs for text in secrets_of(job, secrets)}
        handler_secrets.set(sorted(found, key=len, reverse=True))  # the longest first, as spellings()


def check_batch(what: str, batch: object, within: object) -> tuple[int, float]:
    """Return the size of a batch and the seconds to wait for a full one, or raise :class:`ConfigError`."""
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= LARGEST_BATCH:
        raise ConfigError(f"the batch of {what} must be a whole number from 1 to {LARGEST_BATCH:,}, got {batch!r}")
    if not isinstance(within, int | float) or isinstance(within, bool) or not 0 <= within <= LONGEST_WITHIN:
        raise ConfigError(f"within of {what} must be 0 to {LONGEST_WITHIN:g} seconds, got {within!r}")
    return batch, float(within)
