"""Node with one consumer under measurement: a real `howdah worker` process, and the readings of its meter."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import PIPE
from contextlib import suppress

import msgspec

from howdah.errors import HowdahError
from howdah.postgres.database import Database
from howdah_lab.bench.howdah_process import HowdahProcess
from howdah_lab.bench.meter import READ, RESET, MeterReading

POLL = 0.05
"""Seconds between two readings."""
NO_PROGRESS = 60.0
"""Seconds for a node to start, and to make progress."""


class ConsumerNode(HowdahProcess):
    """A node that runs one of the applications of :mod:`howdah_lab.bench.node`."""

    stdin = PIPE
    stdout = PIPE

    def __init__(self, database: Database, app: str) -> None:
        super().__init__(database, ("worker", "-a", f"howdah_lab.bench.node:{app}", "--metrics", "127.0.0.1:0"))

    async def reset(self) -> None:
        """Reset the meter."""
        await self._ask(RESET)

    async def finish(self, events: int) -> MeterReading:
        """Wait until so many events are handled since the reset; return the reading."""
        before, deadline = 0, time.monotonic() + NO_PROGRESS
        while True:
            reading = await self._ask(READ)
            ended = reading.done + reading.other
            if ended >= events:
                return reading
            if ended > before:
                before, deadline = ended, time.monotonic() + NO_PROGRESS
            elif time.monotonic() > deadline:
                raise HowdahError(
                    f"only {ended:,} of {events:,} ended, and none in {NO_PROGRESS:g} s{self.output_tail}"
                )
            await asyncio.sleep(POLL)

    async def wait_until_ready(self) -> None:
        """Return when the node is registered and at work."""
        deadline = time.monotonic() + NO_PROGRESS
        while not (await self._ask(READ)).started:
            if time.monotonic() > deadline:
                raise HowdahError(f"the node did not start in {NO_PROGRESS:g} s{self.output_tail}")
            await asyncio.sleep(POLL)

    async def _ask(self, command: bytes) -> MeterReading:
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(command)
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise HowdahError(f"the node ended with code {await process.wait()}{self.output_tail}")
        return msgspec.json.decode(line, type=MeterReading)
