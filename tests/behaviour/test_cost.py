"""Jobs that take more than one slot."""

from __future__ import annotations

import asyncio

import pytest

from howdah import ConfigError, Howdah
from kit.node import ended, node

pytestmark = pytest.mark.anyio


async def test_what_costs_more_leaves_room_for_less(app, conn):
    together, most = 0, 0

    async def hold(cost):
        nonlocal together, most
        together += cost
        most = max(most, together)
        await asyncio.sleep(0.05)
        together -= cost

    @app.task(cost=3)
    async def big() -> None:
        await hold(3)

    @app.task
    async def small() -> None:
        await hold(1)

    made = [await task.enqueue() for _ in range(6) for task in (big, small)]
    async with node(app, slots=4):
        for each in made:
            assert (await ended(conn, each.id))["state"] == "done"
    assert most == 4


async def test_one_that_costs_more_than_there_is_runs_alone(app, conn):
    running, most = 0, 0

    @app.task(cost=100)
    async def huge() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    made = [await huge.enqueue() for _ in range(4)]
    async with node(app, slots=2):
        for each in made:
            assert (await ended(conn, each.id))["state"] == "done"
    assert most == 1


@pytest.mark.parametrize("cost", [0, -1, 1.5, True, "2"])
def test_a_cost_that_cannot_be_is_refused(cost):
    with pytest.raises(ConfigError, match="slots of at least 1"):

        @Howdah("postgresql://nowhere").task(cost=cost)
        async def task() -> None: ...
