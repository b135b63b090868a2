"""Somebody to ask why, and handlers that go on until the test lets them end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from howdah import Howdah
from howdah.diagnose.finding import Gate
from kit.node import eventually

Ask = Callable[[int], Awaitable[dict[str, Gate]]]


@pytest.fixture
async def ask(app: Howdah) -> AsyncIterator[Ask]:
    """The gates of a job by name, in order; those in its way come first."""

    async def ask(id: int) -> dict[str, Gate]:
        gates = await app.why.job(id)
        assert [gate.open for gate in gates] == sorted(gate.open for gate in gates)
        assert all("\n" not in gate.fact for gate in gates)
        return {gate.name: gate for gate in gates}

    yield ask
    await app.close()


@pytest.fixture
def closed(ask: Ask) -> Callable[[int], Awaitable[list[str]]]:
    """The names of the gates in the way of a job."""

    async def closed(id: int) -> list[str]:
        return [gate.name for gate in (await ask(id)).values() if not gate.open]

    return closed


class LongTask:
    """A task that runs until it is let go."""

    def __init__(self, app: Howdah, **options: Any) -> None:
        self.go, self.running = asyncio.Event(), 0

        @app.task(name="long", **options)
        async def long() -> None:
            self.running += 1
            try:
                await self.go.wait()
            finally:
                self.running -= 1

        self.task = long

    async def start(self) -> int:
        """Enqueue one and wait until it runs."""
        before, made = self.running, await self.task.enqueue()

        async def runs() -> bool:
            return self.running > before

        await eventually(runs)
        return int(made.id)


@pytest.fixture
def long(app: Howdah) -> Callable[..., LongTask]:
    return lambda **options: LongTask(app, **options)
