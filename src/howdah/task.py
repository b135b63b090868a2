"""Tasks: named handlers, and the methods that enqueue them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from howdah.arguments import LARGEST, encode
from howdah.handler import Handler
from howdah.job import Enqueued, NewJob
from howdah.jobs.labels import queue_for
from howdah.secrets import marked

P = ParamSpec("P")
R = TypeVar("R")


class Enqueuer(Protocol):
    """The methods of an app that a task uses."""

    async def enqueue(self, job: NewJob, conn: Any = None) -> Enqueued: ...

    def enqueue_sync(self, job: NewJob, conn: Any = None) -> Enqueued: ...

    def trace_context(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Defaults for the jobs of a task."""

    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    delay: float | None = None
    max_attempts: int = 5
    timeout: float | None = None
    key: str | None = None
    meta: Mapping[str, Any] | None = None
    requires: Sequence[str] = ()
    """Labels a node must have; the job is stored in a queue named for them, as in ``builds+gpu``."""

    def job(self, kind: str, meta: bytes | None = None) -> NewJob:
        """Make a job of this kind without arguments; it is not checked."""
        return NewJob(
            kind=kind,
            queue=queue_for(self.queue, self.requires),
            priority=self.priority,
            run_at=self.run_at,
            delay=self.delay,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            key=self.key,
            meta=meta,
        )


class Task(Generic[P, R]):
    """A named handler. Call it to run it here; enqueue it to run it on a worker."""

    def __init__(
        self,
        app: Enqueuer,
        handler: Handler,
        settings: TaskSettings,
        *,
        conn: Any = None,
        largest: int = LARGEST,
    ) -> None:
        self._app = app
        self.handler = handler
        self.settings = settings
        """Defaults for its jobs."""
        self._conn = conn
        self._largest = largest
        self._secrets = handler.secrets
        self._encode = handler.arguments.encode
        self._trace = app.trace_context
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, without enqueueing."""
        return self.handler.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Task({self.kind!r}, queue={self.settings.queue!r})"

    @property
    def kind(self) -> str:
        """The name stored with the jobs of this task."""
        return self.handler.kind

    @property
    def job_queue(self) -> str:
        """The queue its jobs are stored in, with the labels they require."""
        return self._model.queue

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Make and check the job of this call, for :meth:`Howdah.enqueue_many`."""
        job: NewJob = self._model.__copy__()  # type: ignore[attr-defined]  # the quickest way to make one
        job.payload = self._encode(args, kwargs, self._largest)
        job.trace = self._trace()
        if self.settings.meta:  # the caller's mapping may have changed since the last job
            job.meta = self._meta(self.settings.meta)
        return job

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue this call."""
        return await self._app.enqueue(self.job(*args, **kwargs), self._conn)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue this call from synchronous code."""
        return self._app.enqueue_sync(self.job(*args, **kwargs), self._conn)

    def using(
        self,
        *,
        conn: Any = None,
        queue: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: float | None = None,
        max_attempts: int | None = None,
        timeout: float | None = None,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        requires: Sequence[str] | None = None,
    ) -> Task[P, R]:
        """Return the task with other settings; ``conn``: enqueue in that connection's transaction."""
        given = {
            "queue": queue,
            "priority": priority,
            "run_at": run_at,
            "delay": delay,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "key": key,
            "meta": meta,
            "requires": requires,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        return Task(
            self._app,
            self.handler,
            replace(self.settings, **changed),  # type: ignore[arg-type]
            conn=conn if conn is not None else self._conn,
            largest=self._largest,
        )

    def check(self) -> None:
        """Reject invalid settings."""
        self._model  # noqa: B018

    @functools.cached_property
    def _model(self) -> NewJob:
        """The fields all its jobs have in common, checked once."""
        say = self.settings
        model = say.job(self.handler.kind, self._meta(say.meta) if say.meta or self._secrets else None)
        model.check()
        return model

    def _meta(self, given: Mapping[str, Any] | None) -> bytes:
        meta = marked(given, self._secrets) if self._secrets else dict(given or {})
        return encode(meta, what="meta", largest=self._largest)


Decorator = Callable[[Callable[P, R]], Task[P, R]]
