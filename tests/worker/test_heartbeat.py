"""Heartbeat: renewals take turns, and slow ones do not hold up the first, on which the leases of all jobs depend."""

from __future__ import annotations

import asyncio
from itertools import groupby

import pytest

from howdah.node.heartbeat import HeartbeatThread
from kit.node import eventually

pytestmark = pytest.mark.anyio

SLOW = ("red", "green", "blue", "black", "white")


async def test_tables_that_are_locked_do_not_hold_up_the_beat_of_the_node():
    beaten: list[str] = []

    def beat(name: str, seconds: float):
        async def beat(_session):
            beaten.append(name)
            await asyncio.sleep(seconds)
            if seconds:
                raise TimeoutError
            return lambda: None

        return beat

    thread = HeartbeatThread(
        NoConnection,
        lambda: 1,
        heartbeat=0.05,
        renewals=[beat("node", 0), *(beat(name, 0.1) for name in SLOW), beat("healthy", 0)],
        fail=lambda: None,
    )
    thread.start()
    try:
        await eventually(lambda: _often(beaten, "healthy", 3))
    finally:
        thread.stop()
    between = [list(names) for is_node, names in groupby(beaten, lambda name: name == "node") if not is_node]
    assert max(sum(name in SLOW for name in names) for names in between) == 1
    others = [name for name in beaten if name != "node"]
    assert others[:12] == [*SLOW, "healthy"] * 2


class NoConnection:
    """A connection that these heartbeats do not use."""

    async def close(self) -> None: ...


async def _often(beaten, name, times):
    return beaten.count(name) >= times
