"""Executors besides the event loop: a thread pool and a process pool for handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from howdah.redact import handler_secrets
from howdah.retry import InterruptionBackoff
from howdah.worker import isolation
from howdah.worker.processes.process import ProcessPool


class Executors:
    """The threads and processes that handlers run on, created when first needed."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.interruptions = InterruptionBackoff()
        self._threads: ThreadPoolExecutor | None = None
        self._processes: ProcessPool | None = None

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._slots, "howdah-job")
        return self._threads

    @property
    def processes(self) -> ProcessPool:
        if self._processes is None:
            self._processes = ProcessPool(self._slots)
        return self._processes

    async def close(self) -> None:
        """Shut down the thread pool without waiting for running threads, and end the processes."""
        if self._threads:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes:
            await self._processes.close()


async def run_in_thread(call: Callable[[], Any], threads: ThreadPoolExecutor) -> Any:
    """Call a plain function in a thread, and return its result or raise its error."""
    context = copy_context()

    def run() -> tuple[Any, BaseException | None]:
        found: tuple[Any, BaseException | None]
        try:
            found = context.run(call), None
        except BaseException as error:  # a future cannot hold every exception (StopIteration); a tuple can
            found = None, error
        isolation.end_if_forked(found[1])
        return found

    future = threads.submit(run)
    while True:
        try:
            value, error = await asyncio.shield(asyncio.wrap_future(future))
            break
        except asyncio.CancelledError:
            if future.cancel() or future.cancelled():
                raise
            # a thread cannot be stopped: the outcome is reported while it runs, and its slot stays taken until it ends
    handler_secrets.set(context.get(handler_secrets, ()))
    if error is not None:
        raise error
    return value
