"""Declares the tasks of an application: ``@app.task``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, Literal, Protocol, TypeVar, overload

from howdah.batch_handler import BatchHandler
from howdah.errors import ArgumentError, ConfigError
from howdah.handler import Executor, Handler
from howdah.job import Job
from howdah.retry import Retries
from howdah.store import Transaction
from howdah.task import Enqueuer, P, R, Task, TaskSettings

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class BatchDecorator(Protocol):
    """Makes a task of a function that takes lists; a job has one element of each."""

    @overload
    def __call__(self, function: Callable[[list[Job]], R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[[list[Job], list[A]], R], /) -> Task[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], R], /) -> Task[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[list[A], list[B]], R], /) -> Task[[A, B], R]: ...
    @overload
    def __call__(self, function: Callable[[list[A], list[B], list[C]], R], /) -> Task[[A, B, C], R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Task[..., R]: ...


class TransactionalBatchDecorator(Protocol):
    """The same for a function that takes a transaction before its lists."""

    @overload
    def __call__(self, function: Callable[[Transaction, list[Job]], R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[[Transaction, list[Job], list[A]], R], /) -> Task[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[Transaction, list[A]], R], /) -> Task[[A], R]: ...
    @overload
    def __call__(self, function: Callable[[Transaction, list[A], list[B]], R], /) -> Task[[A, B], R]: ...
    @overload
    def __call__(self, function: Callable[[Transaction, list[A], list[B], list[C]], R], /) -> Task[[A, B, C], R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Task[..., R]: ...


class TaskRegistry(Enqueuer):
    """The tasks of an application, by kind; a part of :class:`Howdah`."""

    tasks: dict[str, Task[..., Any]]
    _own: dict[str, Task[..., Any]]
    """Built-in tasks."""
    _largest: int
    """Largest payload in bytes."""

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        transactional: Literal[True],
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 5,
        timeout: float | None = None,
        requires: Sequence[str] = (),
        cost: int = 1,
        retry: Retries | None = None,
    ) -> Callable[[Callable[Concatenate[Transaction, P], Awaitable[R]]], Task[P, Awaitable[R]]]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 5,
        timeout: float | None = None,
        requires: Sequence[str] = (),
        cost: int = 1,
        retry: Retries | None = None,
        executor: Executor | None = None,
        transactional: Literal[False] = False,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    @overload
    def task(
        self,
        *,
        batch: int,
        transactional: Literal[True],
        within: float = 0.0,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 5,
        timeout: float | None = None,
        requires: Sequence[str] = (),
        cost: int = 1,
        retry: Retries | None = None,
    ) -> TransactionalBatchDecorator: ...

    @overload
    def task(
        self,
        *,
        batch: int,
        within: float = 0.0,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = 5,
        timeout: float | None = None,
        requires: Sequence[str] = (),
        cost: int = 1,
        retry: Retries | None = None,
        executor: Literal["async", "thread"] | None = None,
        transactional: Literal[False] = False,
    ) -> BatchDecorator: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Make a function a task. Its kind is the function's name unless ``name`` says otherwise.

        ``transactional``: the first parameter is a :class:`Transaction`; its writes and the
        completion of the job are one commit. ``batch``: the function is called once with up to this
        many jobs, and each parameter is a list with one element per job; ``within``: wait up to this
        many seconds for a full batch.
        """
        if function is not None:
            return self._register(function)
        return lambda decorated: self._register(decorated, **options)

    def _register(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retries | None = None,
        executor: Executor | None = None,
        transactional: bool = False,
        cost: int = 1,
        batch: int | None = None,
        within: float = 0.0,
        **settings: Any,
    ) -> Task[..., Any]:
        kind = name or function.__name__
        options: dict[str, Any] = {
            "executor": executor,
            "transactional": transactional,
            "retries": retry,
            "cost": cost,
        }
        if batch is None and within:
            raise ConfigError(f"task {kind!r} has within but no batch; set batch=…")
        handler = (
            Handler(kind, function, **options)
            if batch is None
            else BatchHandler(kind, function, batch=batch, within=within, **options)
        )
        if kind in self.tasks or kind in self._own:
            raise ConfigError(f"two tasks are named {kind!r}; give one of them name=…")
        task: Task[..., Any] = Task(self, handler, TaskSettings(**settings), largest=self._largest)
        try:
            task.check()
        except (ArgumentError, TypeError) as error:
            raise ConfigError(f"invalid settings for task {kind!r}: {error}") from None
        handler.timeout = task.settings.timeout
        self.tasks[kind] = task
        return task
