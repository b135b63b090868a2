"""The processes that run handlers, without a worker around them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from howdah.handler import Handler
from howdah.job import Job
from howdah.work.executors.process import Processes

ids = itertools.count(1)
LARGEST_RESULT = 1024 * 1024


def job_of(handler: Handler, **arguments: Any) -> Job:
    """A job for this handler."""
    return Job(next(ids), "default", handler.kind, 1, 1, 1, msgspec.json.encode(arguments))


@asynccontextmanager
async def processes(most: int = 4) -> AsyncIterator[Processes]:
    """Processes that are gone when the block ends."""
    made = Processes(most)
    try:
        yield made
    finally:
        await made.close()


async def run_in(made: Processes, function: Callable[..., Any], **arguments: Any) -> Any:
    """Run one function in one of them; returns its result."""
    handler = Handler(function.__name__, function, executor="process")
    result = await made.run(handler, job_of(handler, **arguments), LARGEST_RESULT)
    return msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result


async def run_one(function: Callable[..., Any], **arguments: Any) -> Any:
    """Run one function in a process of its own."""
    async with processes() as made:
        return await run_in(made, function, **arguments)
