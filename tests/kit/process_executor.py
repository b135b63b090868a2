"""What runs handlers, without a worker around it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from howdah.handler import Executor, Handler
from howdah.job import Job
from howdah.outcome import Ack
from howdah.worker.attempts import Attempts
from howdah.worker.capacity import Prefetched, Slots
from howdah.worker.processes.process import ProcessPool

ids = itertools.count(1)
LARGEST_RESULT = 1024 * 1024


def job_of(handler: Handler, timeout: float | None = None, **arguments: Any) -> Job:
    """A job for this handler."""
    return Job(next(ids), "default", handler.kind, 1, 1, 1, msgspec.json.encode(arguments), timeout=timeout)


@asynccontextmanager
async def processes(most: int = 4) -> AsyncIterator[ProcessPool]:
    """ProcessPool that are gone when the block ends."""
    made = ProcessPool(most)
    try:
        yield made
    finally:
        await made.close()


async def run_in(made: ProcessPool, function: Callable[..., Any], **arguments: Any) -> Any:
    """Run one function in one of them; returns its result."""
    handler = Handler(function.__name__, function, executor="process")
    result = await made.run(handler, job_of(handler, **arguments), LARGEST_RESULT)
    return msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else result


async def run_one(function: Callable[..., Any], **arguments: Any) -> Any:
    """Run one function in a process of its own."""
    async with processes() as made:
        return await run_in(made, function, **arguments)


async def acks(
    executor: Executor | None,
    function: Callable[..., Any],
    *each: dict[str, Any],
    timeout: float | None = None,
    **shared: Any,
) -> list[Ack]:
    """How attempts end on a worker, in order; ``each``: the arguments of one job."""
    handler = Handler(function.__name__, function, executor=executor)
    found: list[Ack] = []
    inbox, slots = Prefetched({}), Slots(1)
    attempts = Attempts(
        None,  # type: ignore[arg-type]
        {handler.kind: handler},
        inbox,
        slots,
        threads=1,
        largest_result=LARGEST_RESULT,
        finished=found.extend,
        slots_freed=lambda: None,
    )
    inbox.put([job_of(handler, timeout, **arguments) for arguments in each or [shared]])
    attempts.fill()
    async with asyncio.timeout(60):
        while len(found) < len(each or [shared]):
            await asyncio.sleep(0.01)
    await attempts.close()
    return found
