"""Poison: jobs that can never succeed, each in a way of its own. They must end as failed, and harm nobody else."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

from howdah import Poison
from howdah.torture import guards
from howdah.torture.app import AGAIN, app, write

ATTEMPTS = 2
APART: Any = "thread" if guards.off("process") else "process"
"""Where handlers run that take their process with them."""


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def raises(mark: int) -> None:
    """Raises what is no Exception."""
    write("start", "poison", mark)
    raise BaseException("on purpose")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def spoiled(mark: int) -> None:
    """Says itself that it can never succeed."""
    write("start", "poison", mark)
    raise Poison("on purpose")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def exits(mark: int) -> None:
    """Wants the process to end."""
    write("start", "poison", mark)
    sys.exit(3)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def blocks(mark: int) -> None:
    """Blocks the event loop of its node for a second, then fails."""
    write("start", "poison", mark)
    time.sleep(1.0)  # noqa: ASYNC251 - on purpose
    raise ValueError("on purpose")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def vanishes(mark: int) -> None:
    """Ends its process without a word."""
    os._exit(7)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def segfaults(mark: int) -> None:
    """Reads where nothing is."""
    ctypes.string_at(0)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def is_killed(mark: int) -> None:
    """Is killed as by the system when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor="process", timeout=1.0)
def loops(mark: int) -> None:
    """Never ends."""
    while True:
        pass


KINDS = (raises, spoiled, exits, blocks, vanishes, segfaults, is_killed, loops)
