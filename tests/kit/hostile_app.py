"""An app whose handlers harm the event loop they share: ``-a kit.hostile_app:app``."""

from __future__ import annotations

import asyncio

from howdah import Howdah, current_job

app = Howdah()
left: set[asyncio.Task[None]] = set()


async def _raise(error: BaseException) -> None:
    raise error


def _leave(error: BaseException) -> None:
    """Leave a task behind that raises when nobody looks."""
    left.add(asyncio.create_task(_raise(error)))


@app.task(max_attempts=1)
async def leaves_exit() -> None:
    _leave(SystemExit(3))


@app.task(max_attempts=1)
async def leaves_interrupt() -> None:
    _leave(KeyboardInterrupt())


@app.task(max_attempts=1)
async def stops_loop() -> None:
    asyncio.get_running_loop().stop()


@app.task(max_attempts=1)
async def cancels_all() -> None:
    me = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not me:
            task.cancel()


@app.task(max_attempts=1)
async def in_time() -> None:
    """Cancelled by itself, which must go on to work; and by nobody else."""
    print(f"in_time begins {current_job().id}", flush=True)
    for _ in range(20):
        try:
            async with asyncio.timeout(0.1):
                await asyncio.sleep(60)
        except TimeoutError:
            pass


@app.task(max_attempts=1)
async def too_slow() -> None:
    await asyncio.sleep(60)
