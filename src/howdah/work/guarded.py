"""Tasks that are cancelled by the node, and by the handler that runs in them, but by no other handler."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from howdah.job import Job, current
from howdah.service import QUIET

T = TypeVar("T")
log = logging.getLogger("howdah")


class GuardedTask(asyncio.Task[T]):
    """A task that handlers of other jobs cannot cancel, as when one of them cancels all tasks it finds."""

    __slots__ = ("home", "own")

    own: Context
    """The context it runs in: tells which job it runs at the moment."""
    home: Any
    """The job in whose handler the node itself runs, if it does."""
    warned_at = -QUIET

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it, unless the handler of another job asks for it."""
        job = current.get(None)
        if not isinstance(job, Job) or job is self.home or self.own.get(current) is job:
            return super().cancel(msg)
        if time.monotonic() - GuardedTask.warned_at >= QUIET:
            GuardedTask.warned_at = time.monotonic()
            log.warning("job %s (%s) tried to cancel tasks that are not its own; it did not", job.id, job.kind)
        return False


def make_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
    """Make a task, as the task factory of a loop: a guarded one unless a handler makes it."""
    if isinstance(current.get(None), Job):
        return asyncio.Task(work, loop=loop, **options)
    own = options.pop("context", None) or copy_context()
    task = GuardedTask(work, loop=loop, context=own, **options)
    task.own, task.home = own, None
    return task


if sys.version_info >= (3, 12):

    def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context) -> asyncio.Task[None]:
        """Make a guarded task that runs at once, up to its first real wait."""
        return GuardedEagerly(work, loop=loop, context=context, eager_start=True)

    class GuardedEagerly(GuardedTask[T]):
        """The same; its context is known before it starts."""

        __slots__ = ()

        def __init__(self, work: Any, *, context: Context, **options: Any) -> None:
            self.own, self.home = context, context.get(current)
            super().__init__(work, context=context, **options)

else:

    def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context) -> asyncio.Task[None]:
        """Make a guarded task."""
        task = GuardedTask(work, loop=loop, context=context)
        task.own, task.home = context, context.get(current)
        return task
