"""Tasks of the scenarios that measure Howdah only. They do next to nothing, so that its overhead is measured."""

from __future__ import annotations

import time
from typing import Any

from howdah import Howdah, NewJob
from howdah.task import Task

SCHEMA = "howdah_bench"

app = Howdah(schema=SCHEMA)

delays: list[float] = []
"""Seconds from the enqueue or append call to the start of the handler, of every probe that ran in this process."""
unsettled: list[float] = []
"""When the append calls began of the events that were probed and whose batch is not committed yet."""


@app.task
async def nothing(user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    """Arguments as an application would have them, some 90 bytes of JSON."""


@app.task
async def probe(began: float) -> None:
    """Records the delay from the enqueue call to its start; processes of a machine share the monotonic clock."""
    delays.append(time.monotonic() - began)


def make(task: Task[..., Any], number: int) -> NewJob:
    """The job with this number."""
    return task.job(*arguments(number))


def arguments(number: int) -> tuple[int, str, str, int, list[str]]:
    """Return the arguments of the job with this number."""
    return 100_000 + number, f"user{number}@example.com", "welcome", number % 17, ["a", "b"]
