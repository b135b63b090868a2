"""Protects a node from its handlers: tasks that they cannot cancel, and the end of processes that they forked.

The job belongs to the parent of a fork. A fork that returned from the handler must neither report an outcome nor
continue the parent's work: it would read from and write to the parent's sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar

from howdah.job import Job, current
from howdah.loops import LOG_INTERVAL

T = TypeVar("T")
log = logging.getLogger("howdah")


class GuardedTask(asyncio.Task[T]):
    """A task that handlers of other jobs cannot cancel, as when a handler cancels all tasks of the event loop."""

    __slots__ = ("home", "own")

    own: Context
    """The context it runs in, with the job that it runs at the moment."""
    home: Any
    """The job in whose handler the node itself runs, if any."""
    warned_at = -LOG_INTERVAL

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task, unless the handler of another job calls this."""
        job = current.get(None)
        if not isinstance(job, Job) or job is self.home or self.own.get(current) is job:
            return super().cancel(msg)
        if time.monotonic() - GuardedTask.warned_at >= LOG_INTERVAL:
            GuardedTask.warned_at = time.monotonic()
            log.warning("job %s (%s) tried to cancel tasks that are not its own; it did not", job.id, job.kind)
        return False


def make_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
    """Create a task, as the task factory of a loop: a guarded one unless a handler creates it."""
    if isinstance(current.get(None), Job):
        return asyncio.Task(work, loop=loop, **options)
    own = options.pop("context", None) or copy_context()
    task = GuardedTask(work, loop=loop, context=own, **options)
    task.own, task.home = own, None
    return task


if sys.version_info >= (3, 12):

    def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context) -> asyncio.Task[None]:
        """Create a guarded task that runs at once, until it first suspends."""
        return GuardedEagerly(work, loop=loop, context=context, eager_start=True)

    class GuardedEagerly(GuardedTask[T]):
        """A guarded task whose context is known before it starts."""

        __slots__ = ()

        def __init__(self, work: Any, *, context: Context, **options: Any) -> None:
            self.own, self.home = context, context.get(current)
            super().__init__(work, context=context, **options)

else:

    def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context) -> asyncio.Task[None]:
        """Create a guarded task."""
        task = GuardedTask(work, loop=loop, context=context)
        task.own, task.home = context, context.get(current)
        return task


forked = False
"""True if this process was forked by a handler."""


def settle() -> None:
    """Declare that this process runs handlers of its own from now on, even if a handler forked it."""
    global forked
    forked = False


def end_if_forked(error: BaseException | None = None) -> None:
    """Called when a handler has ended; does not return in a process that the handler forked."""
    if forked:
        _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """Exit as Python does: with code 0, with that of a :class:`SystemExit`, or with 1 and a traceback."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code if error.code is not None else 0
    elif error is not None:
        code = 1
        with suppress(BaseException):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 1)


def _after_fork() -> None:
    global forked
    forked = forked or isinstance(current.get(None), Job)


os.register_at_fork(after_in_child=_after_fork)
