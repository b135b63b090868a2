"""Tasks of the node and of other jobs are not cancelled by a handler; a handler's own are."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

import pytest

from howdah.job import Job, current
from howdah.worker.isolation import make_task, start

pytestmark = pytest.mark.anyio


def job(number: int) -> Job:
    return Job(number, "default", "kind", 1, 5, 1, b"{}")


async def handle(mine: Job) -> None:
    current.set(mine)
    await asyncio.sleep(60)


def as_handler(mine: Job, function, *args):
    """Call a function in the context of a handler."""

    def call():
        current.set(mine)
        return function(*args)

    return copy_context().run(call)


@pytest.mark.parametrize("outside", [None, job(9)], ids=["a node", "a node inside a handler"])
async def test_only_the_node_and_its_own_handler_cancel_an_attempt(outside):
    if outside:
        current.set(outside)
    loop, first, second = asyncio.get_running_loop(), job(1), job(2)
    for who, cancelled in ((second, False), (first, True), (None, True)):
        task = start(handle(first), loop, copy_context())
        await asyncio.sleep(0)
        assert (as_handler(who, task.cancel) if who else task.cancel()) is cancelled
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


async def test_tasks_of_the_node_are_guarded_and_those_of_handlers_are_their_own():
    current.set(None)
    loop = asyncio.get_running_loop()
    of_the_node = make_task(loop, asyncio.sleep(60))
    of_a_handler = as_handler(job(1), make_task, loop, asyncio.sleep(60))

    assert not as_handler(job(1), of_the_node.cancel)
    assert as_handler(job(2), of_a_handler.cancel)
    assert of_the_node.cancel()
    await asyncio.wait({of_the_node, of_a_handler})
