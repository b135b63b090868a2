"""Handlers in threads, which cannot be stopped."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from howdah.handler import Handler
from howdah.job import Job
from howdah.scrub import told
from howdah.work.executors import fork


async def run_in_thread(handler: Handler, job: Job, threads: ThreadPoolExecutor) -> Any:
    """Run a plain function in a thread; returns what it returned, raises what it raised."""
    context = copy_context()

    def call() -> tuple[Any, BaseException | None]:
        found: tuple[Any, BaseException | None]
        try:
            found = context.run(handler.call, job), None
        except BaseException as error:  # a future cannot carry every exception; a tuple can
            found = None, error
        fork.end_if_forked(found[1])
        return found

    future = threads.submit(call)
    while True:
        try:
            value, error = await asyncio.shield(asyncio.wrap_future(future))
            break
        except asyncio.CancelledError:
            if future.cancel() or future.cancelled():
                raise
            # a thread cannot be stopped: its outcome is reported without it, its slot stays taken until it ends
    told.set(context.get(told, ()))
    if error is not None:
        raise error
    return value
